"""Tracebacks for people: their own code first, what libraries did in between on demand."""

import re
from itertools import groupby

_FRAME = re.compile(r'^(?=  File ")', re.MULTILINE)
_END = re.compile(r"^(?! )", re.MULTILINE)
_LIBRARY = re.compile(r'  File "(<frozen |[^"\n]*[/\\]((site|dist)-packages|lib[/\\]python[\d.]+)[/\\])', re.IGNORECASE)


def own(traceback: str) -> str | None:
    """A traceback without the frames of libraries; None if that leaves nothing, or everything."""
    head, *frames = _FRAME.split(traceback)
    is_library = [_LIBRARY.match(frame) is not None for frame in frames]
    if not frames or len(set(is_library)) == 1:
        return None
    end = _END.search(frames[-1])
    last_line = frames[-1][end.start() :] if end is not None else ""
    frames[-1] = frames[-1].removesuffix(last_line)
    told = [head]
    for is_left_out, run in groupby(zip(frames, is_library, strict=True), key=lambda each: each[1]):
        texts = [frame for frame, _ in run]
        number = "1 frame" if len(texts) == 1 else f"{len(texts)} frames"
        told += [f"  … {number} of libraries\n"] if is_left_out else texts
    return "".join([*told, last_line])
