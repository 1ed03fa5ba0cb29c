"""Where a server listens, as people write it: `127.0.0.1:8421`, `[::1]:8421`, `localhost:8421` or `8421`."""

import re

from holdfast.errors import ConfigError

LOCAL = "127.0.0.1"
EXPECTED = 'an address such as "127.0.0.1:8421"'

_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]/]+):)?(?P<port>[0-9]{1,5})", re.ASCII)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port; without a host, this machine only. Port 0 lets the system choose."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > 65_535:
        raise ConfigError(f"{text!r} is not {EXPECTED}")
    return (found["host"] or LOCAL).strip("[]"), int(found["port"])


def beside(address: tuple[str, int], number: int) -> tuple[str, int]:
    """The address of another process of the same kind: so many ports further on."""
    host, port = address
    if port and port + number > 65_535:
        raise ConfigError(f"there is no port {port + number}: give a smaller one for so many processes")
    return host, port + number if port else 0
