"""A brake on guessing: who gave wrong tokens too often is not asked for a while."""

import ipaddress
import time

from starlette.requests import HTTPConnection

from holdfast.web.view.problems import Problem

TRIES = 10
"""Wrong tokens from one address before it has to wait."""
WAIT = 60.0
"""Seconds, from the first of them."""
REMEMBERED = 10_000
"""Addresses at most."""


class Brake:
    """Counts wrong tokens by the address they come from. Whoever shares one, as behind a proxy, waits together."""

    def __init__(self) -> None:
        self._wrong: dict[str, tuple[float, int]] = {}

    def check(self, request: HTTPConnection) -> None:
        """Refuses whoever has to wait, whether the token is right or not: or guessing would go on."""
        began, wrong = self._of(_address(request))
        if wrong >= TRIES:
            left = max(1, round(began + WAIT - time.monotonic()))
            raise Problem(
                429,
                "Too many wrong tokens",
                f"{TRIES} wrong tokens came from your address within {WAIT:.0f} s. Try again in {left} s.",
            )

    def count(self, request: HTTPConnection) -> None:
        """Notes a wrong token."""
        address = _address(request)
        began, wrong = self._of(address)
        if address not in self._wrong and len(self._wrong) >= REMEMBERED:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[address] = (began, wrong + 1)

    def _of(self, address: str) -> tuple[float, int]:
        now = time.monotonic()
        began, wrong = self._wrong.get(address, (now, 0))
        if now - began < WAIT:
            return began, wrong
        del self._wrong[address]
        return now, 0


def _address(request: HTTPConnection) -> str:
    """Of IPv6 the network: a single customer has more addresses than could be counted."""
    host = request.client.host if request.client is not None else ""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))
