"""`python -m faults.producer`: a caller in a process of its own, until its input ends. Tells what it was told."""

import asyncio
import json
import sys
import time
from itertools import count

from faults.crew import Leave, app

DELAYS = (0.0, 0.5, 2.0)


async def main(name: str) -> None:
    """Enqueues now and later, a few tasks a second."""
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    for n in count():
        if ended.done():
            break
        tag, delay = f"{name}/{n}", DELAYS[n % len(DELAYS)]
        asked = time.monotonic()
        ref = await app.enqueue(Leave(n), headers={"tag": tag}, delay=delay)
        print(json.dumps([tag, str(ref.id), asked, delay]), flush=True)
        await asyncio.sleep(0.1)
    await app.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
