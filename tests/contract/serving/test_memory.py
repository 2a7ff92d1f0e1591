"""Memory is given back to the kernel once it is free, by either allocator."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from kube.process import run
from wherry import allocator

_SCRIPT = """
import asyncio, os, sys
from pathlib import Path
from kube import bounded_cache
from kube.serving import memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

async def main():
    memory.EVERY = 0.2
    task = asyncio.create_task(memory.give_back()) if sys.argv[1] == "on" else None
    cache = {"key": "value"}
    bounded_cache.on_forget(cache.clear)
    before = resident()
    kept = []
    for pause in map(float, sys.argv[2:]):
        blocks = [bytes(1000) for _ in range(100_000)]
        await asyncio.sleep(pause) if pause else None
        kept += blocks[::1000]  # one in a hundred pages stays in use, so that the heap has no free end
        del blocks
        await asyncio.sleep(1)
    print(resident() - before, len(cache))

asyncio.run(main())
"""
_OWN = """
import sys
from kube.serving import allocators

found = allocators.own()
before = found.free()
blocks = [bytes(1000) for _ in range(100_000)]
kept = blocks[::1000]
full = found.free()
del blocks
freed = found.free()
found.trim()
print(type(found).__name__, full - before >> 20, freed - full >> 20, found.free() - freed >> 20)
"""

_AGED = """
import os, time
from pathlib import Path
from kube.serving import allocators

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

found = allocators.own()
blocks = [bytes(1000) for _ in range(100_000)]
full = resident()
del blocks
for _ in range(20):
    time.sleep(0.05)
    found.free()
print(full - resident())
"""

_CACHED = """
from kube.serving import allocators

found = allocators.own()
for size in range(32, 32_768, 32):
    blocks = [bytes(size) for _ in range(50)]
    del blocks
before = found.free()
found.release_thread_cache()
print(found.free() - before >> 10)
"""

ROOT = str(Path(__file__).resolve().parents[3])


@pytest.fixture(params=["glibc", "jemalloc"])
def variables(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a process with an allocator."""
    if request.param == "jemalloc" and not allocator.library():
        pytest.skip(f"{allocator.PACKAGE} is not installed")
    return {"PYTHONPATH": ROOT} | (allocator.variables() if request.param == "jemalloc" else {})


async def _left(variables: dict[str, str], mode: str, *pauses: str) -> tuple[int, int]:
    """Return the MiB that are left after loads of 100 MB, which last for so many seconds each, and the entries of a cache."""
    done = await run([sys.executable, "-c", _SCRIPT, mode, *pauses], env=variables)
    left, entries = map(int, done.stdout.split())
    return left, entries


async def test_what_was_freed_between_what_is_in_use_goes_back_to_the_kernel(variables: dict[str, str]) -> None:
    kept, given_back = await asyncio.gather(_left(variables, "off", "0.5"), _left(variables, "on", "0.5"))
    assert kept[0] > 80
    assert given_back[0] < 30


async def test_what_a_load_between_two_looks_leaves_free_goes_back_too(variables: dict[str, str]) -> None:
    assert (await _left(variables, "on", "0.5", "0"))[0] < 30


async def test_caches_are_emptied_after_a_load(variables: dict[str, str]) -> None:
    assert (await _left(variables, "on", "0.5"))[1] == 0


@pytest.mark.skipif(not allocator.library(), reason=f"{allocator.PACKAGE} is not installed")
async def test_jemalloc_returns_free_memory_while_the_process_is_idle() -> None:
    reported = allocator.variables()
    reported["MALLOC_CONF"] += ",dirty_decay_ms:200"
    done = await run([sys.executable, "-c", _AGED], env={"PYTHONPATH": ROOT} | reported)
    assert int(done.stdout) > 100


async def test_what_was_given_back_still_counts_as_free(variables: dict[str, str]) -> None:
    done = await run([sys.executable, "-c", _OWN], env=variables)
    name, taken, freed, given_back = done.stdout.split()
    assert (name == "Jemalloc") == ("LD_PRELOAD" in variables)
    assert int(taken) < 20 and int(freed) > 80 and abs(int(given_back)) < 10


@pytest.mark.skipif(not allocator.library(), reason=f"{allocator.PACKAGE} is not installed")
async def test_blocks_that_jemalloc_keeps_ready_for_a_thread_are_freed() -> None:
    done = await run([sys.executable, "-c", _CACHED], env={"PYTHONPATH": ROOT} | allocator.variables())
    assert int(done.stdout) > 100  # 350 to 640 KiB, by what else the process has allocated; 0 without the call
