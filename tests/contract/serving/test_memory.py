"""Memory is given back to the kernel once it is free."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kube.process import run

_SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from kube.serving import memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

async def main():
    memory.EVERY = 0.2
    task = asyncio.create_task(memory.give_back()) if sys.argv[1] == "on" else None
    before = resident()
    blocks = [bytes(1000) for _ in range(100_000)]
    await asyncio.sleep(0.5)
    kept = blocks[::1000]  # one in a hundred pages stays in use, so that the heap has no free end
    del blocks
    await asyncio.sleep(1)
    print(resident() - before)

asyncio.run(main())
"""


ROOT = str(Path(__file__).resolve().parents[3])


async def _left(mode: str) -> int:
    done = await run([sys.executable, "-c", _SCRIPT, mode], env={"PYTHONPATH": ROOT})
    return int(done.stdout)


async def test_what_was_freed_between_what_is_in_use_goes_back_to_the_kernel() -> None:
    kept, given_back = await asyncio.gather(_left("off"), _left("on"))
    assert kept > 80
    assert given_back < 30
