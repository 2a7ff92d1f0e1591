"""Runs of seeds in forks of this process, in which nothing has happened since its first run."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from simulation.run import Result, Settings, simulate


def results(seeds: Sequence[int], settings: Settings, number: int) -> Iterator[Result]:
    """Run each seed, so many at a time."""
    pool = ThreadPoolExecutor(number)
    try:
        yield from pool.map(lambda seed: forked(seed, settings), seeds)
    finally:
        pool.shutdown(cancel_futures=True)  # if the caller needs no more


def forked(seed: int, settings: Settings) -> Result:
    """Run a seed in a fork and return its result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(msgspec.msgpack.encode(simulate(seed, settings)))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    if not data:
        raise RuntimeError(f"the process of seed {seed} ended without a result")
    return msgspec.msgpack.decode(data, type=Result)
