"""Steps of the kind in `test_graph`, in another module, as T23 asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast import Done, Tasks

if TYPE_CHECKING:
    import somewhere  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
    from elsewhere import Start  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

    from holdfast import Context


def context_only_for_checkers(ctx: Context, n: int = 1) -> bytes:
    return b"x"


tasks = Tasks()
kind = tasks.kind("parcel")


@kind.step
@dataclass
class Pack:
    def run(self) -> Start | somewhere.Ship | None: ...


@kind.step
@dataclass
class Lost:
    def run(self) -> Done[int] | somewhere.Unheard | Start: ...
