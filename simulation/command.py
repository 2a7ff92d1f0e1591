"""The command line: runs seeds in processes of their own, and reports."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from simulation.faults import KINDS
from simulation.mutants import MUTANTS
from simulation.run import Result, Settings, simulate
from simulation.world import prepare

YEAR_HOURS = 8766.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"  # the order of sets of strings
        os.execv(  # noqa: S606 - this program again
            sys.executable, [sys.executable, "-m", "simulation", *(sys.argv[1:] if arguments is None else arguments)]
        )
    given = _parse(arguments)
    settings = Settings(
        hours=given.hours, members=given.members, nodes=given.nodes, faults=tuple(given.faults), timeline=given.replay
    )
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    prepare()
    simulate(0, Settings(hours=0.02, nodes=1, members=1))  # imports and caches, so that each seed begins alike
    began, total, injected, bad = time.monotonic(), 0.0, Counter[str](), set[int]()
    digests: dict[int, str] = {}
    for result in _results([seed for seed in seeds for _ in range(given.repeat)], settings, given.processes):
        total += result.seconds
        injected.update(result.faults)
        print(_line(result), flush=True)
        for violation in result.violations:
            print(f"  {violation.at:.3f} s: {violation.rule}: {violation.text}")
        if digests.setdefault(result.seed, result.digest) != result.digest:
            print(f"  the trace of seed {result.seed} differs from that of its first run")
            bad.add(result.seed)
        if result.violations:
            bad.add(result.seed)
        if given.replay:
            print("\n".join(result.lines))
        if bad and given.first:
            break
    real = time.monotonic() - began
    print(
        f"{total / 3600 / YEAR_HOURS:.5f} cluster-years in {real:.0f} s, "
        f"{', '.join(f'{number} x {kind}' for kind, number in injected.items()) or 'no faults'}, "
        f"{len(bad)} of {len(seeds)} seeds with violations"
    )
    return 1 if bad else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", default="1-10", metavar="A-B", help="seeds to run (default: %(default)s)")
    parser.add_argument(
        "--hours", type=float, default=1.0, help="virtual hours with users and faults (default: %(default)s)"
    )
    parser.add_argument("--members", type=int, default=3, help="members of the control plane (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=5, help="simulated nodes (default: %(default)s)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="seeds at the same time (default: %(default)s)"
    )
    parser.add_argument(
        "--faults", nargs="*", default=list(KINDS), choices=KINDS, help="kinds of faults (default: all)"
    )
    parser.add_argument(
        "--repeat", type=int, default=1, help="runs of each seed, whose traces must not differ (default: 1)"
    )
    parser.add_argument("--first", action="store_true", help="stop after the first seed with violations")
    names = [each.name for each in MUTANTS]
    parser.add_argument("--mutant", choices=names, help="a fault to put into the code, which the rules have to find")
    parser.add_argument("--replay", action="store_true", help="print the timeline")
    return parser.parse_args(arguments)


def _results(seeds: Sequence[int], settings: Settings, number: int) -> Iterator[Result]:
    """Run each seed in a fork of this process, in which nothing has happened since the first run."""
    pool = ThreadPoolExecutor(number)
    try:
        yield from pool.map(lambda seed: _forked(seed, settings), seeds)
    finally:
        pool.shutdown(cancel_futures=True)  # if the caller needs no more


def _forked(seed: int, settings: Settings) -> Result:
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


def _line(result: Result) -> str:
    settled = "not settled" if result.settled_after is None else f"settled after {result.settled_after:.0f} s"
    return (
        f"seed {result.seed}: {result.seconds / 3600:.2f} h, {result.iterations} iterations, {result.writes} writes, "
        f"{result.requests}, observed {result.observed}, {settled}, trace {result.digest[:16]}"
    )
