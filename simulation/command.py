"""The command line: runs seeds in processes of their own, and reports."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from simulation import shrinking
from simulation.faults import KINDS
from simulation.forks import forked, results
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
        hours=given.hours,
        members=given.members,
        nodes=given.nodes,
        faults=tuple(given.faults),
        dropped_faults=given.without_faults,
        dropped_steps=given.without_steps,
        registers=not given.without_registers,
        timeline=given.replay,
    )
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    prepare()
    simulate(0, Settings(hours=0.02, nodes=1, members=1))  # imports and caches, so that each seed begins alike
    return _run(given, seeds, settings)


def _run(given: argparse.Namespace, seeds: range, settings: Settings) -> int:
    began, total, injected, bad = time.monotonic(), 0.0, Counter[str](), set[int]()
    digests: dict[int, str] = {}
    for result in results([seed for seed in seeds for _ in range(given.repeat)], settings, given.processes):
        total += result.seconds
        injected.update(result.faults)
        print(_line(result), flush=True)
        for violation in result.violations:
            print(f"  {violation.at:.3f} s: {violation.rule}: {violation.text} (step {violation.step})")
        if digests.setdefault(result.seed, result.digest) != result.digest:
            print(f"  the trace of seed {result.seed} differs from that of its first run")
            bad.add(result.seed)
        if given.replay:
            print("\n".join(result.lines))
        if result.violations:
            if given.shrink and result.seed not in bad:
                _shrink(result, settings, given.shrink)
            bad.add(result.seed)
            if given.first:
                break
    real = time.monotonic() - began
    print(
        f"{total / 3600 / YEAR_HOURS:.5f} cluster-years in {real:.0f} s, "
        f"{', '.join(f'{number} x {kind}' for kind, number in injected.items()) or 'no faults'}, "
        f"{len(bad)} of {len(seeds)} seeds with violations"
    )
    return 1 if bad else 0


def _shrink(result: Result, settings: Settings, seconds: float) -> None:
    """Print the shortest schedule that breaks the same rule first."""
    seed, rule = result.seed, result.violations[0].rule
    plain = msgspec.structs.replace(settings, timeline=False)
    found = shrinking.shrink(plain, result, rule, lambda smaller: forked(seed, smaller), seconds)
    broken = next(violation for violation in found.result.violations if violation.rule == rule)
    print(f"  shortest schedule found in {seconds:g} s: {shrinking.summary(found)}")
    print(f"  {broken.at:.3f} s: {broken.rule}: {broken.text} (step {broken.step})")
    print(f"  scripts/simulate --seeds {seed} {shrinking.options(found.settings)} --replay", flush=True)


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
    parser.add_argument(
        "--shrink",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="real time to search for the shortest schedule that breaks the same rule (default: 120; 0: do not)",
    )
    for what in ("faults", "steps"):
        text = f"numbers of {what} that are left out"
        parser.add_argument(f"--without-{what}", type=shrinking.numbers_of, default=(), metavar="1-3,7", help=text)
    parser.add_argument("--without-registers", action="store_true", help="no user changes ConfigMaps all the time")
    names = [each.name for each in MUTANTS]
    parser.add_argument("--mutant", choices=names, help="a fault to put into the code, which the rules have to find")
    parser.add_argument("--replay", action="store_true", help="print the timeline: who did what, and why")
    return parser.parse_args(arguments)


def _line(result: Result) -> str:
    settled = "not settled" if result.settled_after is None else f"settled after {result.settled_after:.0f} s"
    return (
        f"seed {result.seed}: {result.seconds / 3600:.2f} h, {result.iterations} iterations, {result.writes} writes, "
        f"{result.requests}, observed {result.observed}, {settled}, trace {result.digest[:16]}"
    )
