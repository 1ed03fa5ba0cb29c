"""Where a server listens, as people write it."""

import pytest

from holdfast._model.address import beside, parse_address
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8421", ("127.0.0.1", 8421)),
        ("8421", ("127.0.0.1", 8421)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:8421", ("::1", 8421)),
        ("worker-1.internal:0", ("worker-1.internal", 0)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "localhost", ":", "::1:80", "host:", "host:99999", "http://host:80", "a b:80", "-1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not an address such as"):
        parse_address(text)


def test_several_processes_have_ports_that_follow() -> None:
    assert [beside(("::1", 8421), n) for n in range(3)] == [("::1", 8421), ("::1", 8422), ("::1", 8423)]
    assert beside(("::1", 0), 5) == ("::1", 0)
    with pytest.raises(ConfigError, match="there is no port 65536"):
        beside(("::1", 65_530), 6)
