"""The ids of tasks: UUIDs of version 7."""

import os
import sys
import threading
import time
from array import array
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from holdfast.errors import TaskNotFound


class _IdClock:
    """Milliseconds and a counter that together never repeat or go back within this process.

    The counter (42 bits: 12 of `rand_a`, the first 30 of `rand_b`) starts at a random value each
    millisecond and counts up within it, as RFC 9562 section 6.2 describes; 32 more bits are always random.
    """

    __slots__ = ("counter", "lock", "millisecond")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.millisecond = 0
        self.counter = 0

    def next(self, noise: int, count: int = 1) -> tuple[int, int]:
        """A millisecond, and the first of so many counters within it."""
        now = time.time_ns() // 1_000_000
        with self.lock:
            if now > self.millisecond:
                self.millisecond = now
                # the top bit stays free, so that there is always room to count up
                first = noise & 0x1FF_FFFF_FFFF
            else:
                # the same millisecond, or a wall clock set back: the order of ids is kept
                first = self.counter + 1
                if first + count > 0x3FF_FFFF_FFFF:
                    self.millisecond += 1
                    first = noise & 0x1FF_FFFF_FFFF
            self.counter = first + count - 1
            return self.millisecond, first


_clock = _IdClock()
_read_id = msgspec.msgpack.Decoder(UUID).decode
_read_ids = msgspec.msgpack.Decoder(list[UUID]).decode


def uuid7() -> UUID:
    """A new id: ordered by time, always increasing within this process, unique across processes and forks."""
    noise = int.from_bytes(os.urandom(10), "big")  # from the kernel at each call: a forked child differs
    millisecond, counter = _clock.next(noise >> 32)
    return _read_id(b"\xc4\x10" + _bits(millisecond, counter, noise & 0xFFFF_FFFF).to_bytes(16, "big"))


def uuid7s(count: int) -> list[UUID]:
    """So many new ids, in order."""
    noise = os.urandom(6 + 4 * count)
    millisecond, first = _clock.next(int.from_bytes(noise[:6], "big"), max(count, 1))
    carry = 2**30 - first % 2**30  # from here on the counter's upper bits differ
    if count <= carry:
        return _ids(_bits(millisecond, first, 0), noise[6:])
    split = 6 + 4 * carry
    later = _ids(_bits(millisecond, first + carry, 0), noise[split:])
    return _ids(_bits(millisecond, first, 0), noise[6:split]) + later


def _ids(first: int, noise: bytes) -> list[UUID]:
    """The ids from `first` on, one for each four bytes of noise; only the lower eight bytes of ids are counted up.

    Laid out as an array of MessagePack, column by column, and read by msgspec: as many calls of `UUID` take five times
    as long.
    """
    count = len(noise) // 4
    counter = first >> 32 & 0xFFFF_FFFF
    counters = array("I", range(counter, counter + count))
    if sys.byteorder == "little":
        counters.byteswap()
    counted = counters.tobytes()
    laid = bytearray((b"\xc4\x10" + first.to_bytes(16, "big")) * count)
    for byte in range(4):
        laid[10 + byte :: 18] = counted[byte::4]
        laid[14 + byte :: 18] = noise[byte::4]
    return _read_ids(b"\xdd" + count.to_bytes(4, "big") + laid)


def _bits(millisecond: int, counter: int, noise: int) -> int:
    return (
        (millisecond & 0xFFFF_FFFF_FFFF) << 80
        | 0x7 << 76
        | (counter >> 30) << 64
        | 0b10 << 62
        | (counter & 0x3FFF_FFFF) << 32
        | noise
    )


def made_at(id: UUID) -> datetime | None:
    """When an id of version 7 was made, by the clock of the process that made it; None for other ids."""
    try:
        return datetime.fromtimestamp((id.int >> 80) / 1000, UTC) if id.version == 7 else None
    except ValueError:  # written by hand: beyond the year 9999
        return None


def as_uuid(text: str | UUID) -> UUID:
    """An id as given by people."""
    if isinstance(text, UUID):
        return text
    try:
        return UUID(text)
    except (ValueError, AttributeError, TypeError):
        raise TaskNotFound(
            f"{text!r} is not the id of a task: it should look like 01890a5d-ac96-774b-bcce-b302099a8057"
        ) from None


def _after_fork() -> None:
    # the parent's lock may have been held at the moment of the fork
    _clock.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
