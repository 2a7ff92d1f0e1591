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
    kept = []
    for pause in map(float, sys.argv[2:]):
        blocks = [bytes(1000) for _ in range(100_000)]
        await asyncio.sleep(pause) if pause else None
        kept += blocks[::1000]  # one in a hundred pages stays in use, so that the heap has no free end
        del blocks
        await asyncio.sleep(1)
    print(resident() - before)

asyncio.run(main())
"""


ROOT = str(Path(__file__).resolve().parents[3])


async def _left(mode: str, *pauses: str) -> int:
    """Return the MiB that are left after loads of 100 MB, which last for so many seconds each."""
    done = await run([sys.executable, "-c", _SCRIPT, mode, *pauses], env={"PYTHONPATH": ROOT})
    return int(done.stdout)


async def test_what_was_freed_between_what_is_in_use_goes_back_to_the_kernel() -> None:
    kept, given_back = await asyncio.gather(_left("off", "0.5"), _left("on", "0.5"))
    assert kept > 80
    assert given_back < 30


async def test_what_a_load_between_two_looks_leaves_free_goes_back_too() -> None:
    assert await _left("on", "0.5", "0") < 30
