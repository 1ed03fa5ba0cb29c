"""One task makes many: a checksum for every file of a folder, however many there are.

It shows `ctx.enqueue`: without await, because what is enqueued becomes real together with the step's outcome. If the
step fails or its worker dies, none of the new tasks exists, and the next attempt enqueues them once.

    holdfast dev examples/fan_out.py
    holdfast enqueue scan.Scan folder=examples --wait         # prints how many files there are
    holdfast tasks --kind checksum
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast import App, Context, Done

app = App()
scan = app.kind("scan", result=int)

AT_ONCE = 500


@app.task
def checksum(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@scan.step
@dataclass
class Scan:
    folder: str
    after: str = ""
    found: int = 0

    def run(self, ctx: Context) -> "Scan | Done[int]":
        names = sorted(path.name for path in Path(self.folder).iterdir() if path.is_file() and path.name > self.after)
        part = names[:AT_ONCE]
        for name in part:
            path = str(Path(self.folder, name))
            # While a task with this key is unfinished there will be no second one: scanning again does no harm.
            ctx.enqueue(checksum.bind(path), key=f"checksum of {path}")
        if len(part) < len(names):
            # Large folders go in parts, one move each: after a crash it goes on with the part that is missing.
            return replace(self, after=part[-1], found=self.found + len(part))
        return Done(self.found + len(part))
