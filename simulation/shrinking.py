"""Shrinks the schedule of a run that breaks a rule: less time, fewer faults, users' steps, nodes and members.

Greedy: each smaller schedule that still breaks the rule is kept, until none does or the budget is used up. What remains of a
schedule happens as before, but messages get other latencies, so a fault may be missed by a schedule that contains its cause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from simulation.run import Result, Settings

Run = Callable[[Settings], Result]
AT_END = frozenset({"settled", "quiet", "level", "service"})
"""Rules that are checked after the time of faults: the run cannot end before."""
SHORTEST_HOURS = 0.02


class Shrunk(msgspec.Struct):
    """The shortest schedule that was found."""

    settings: Settings
    result: Result
    runs: int
    """Runs that were tried."""


def shrink(settings: Settings, result: Result, rule: str, run: Run, seconds: float) -> Shrunk:
    """Return the shortest schedule that breaks a rule, found within so many seconds of real time."""
    end, best = time.monotonic() + seconds, Shrunk(replace(settings, stop_at=rule), result, 0)
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(best.settings, best.result, rule):
            if time.monotonic() > end:
                return best
            best.runs += 1
            found = run(candidate)
            if any(violation.rule == rule for violation in found.violations):
                best.settings, best.result, smaller = candidate, found, True
                break
    return best


def candidates(settings: Settings, result: Result, rule: str) -> Iterator[Settings]:
    """Return smaller schedules, those that save the most first; none is as large as the given one."""
    at = next((violation.at for violation in result.violations if violation.rule == rule), 0.0) / 3600
    if rule not in AT_END and SHORTEST_HOURS < at < 0.99 * settings.hours:
        yield replace(settings, hours=at * 1.001)
    elif settings.hours > 2 * SHORTEST_HOURS:
        yield replace(settings, hours=settings.hours / 2)
    for kind in settings.faults:
        yield replace(settings, faults=tuple(each for each in settings.faults if each != kind))
    for part in parts(result.fault_numbers):
        yield replace(settings, dropped_faults=(*settings.dropped_faults, *part))
    if settings.registers:
        yield replace(settings, registers=False)
    for part in parts(result.step_numbers):
        yield replace(settings, dropped_steps=(*settings.dropped_steps, *part))
    for nodes in sorted({1, settings.nodes // 2, settings.nodes - 1} - {0, settings.nodes}):
        if nodes < settings.nodes:
            yield replace(settings, nodes=nodes)
    if settings.members > 1:
        yield replace(settings, members=settings.members - 1)


def parts(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Return what to leave out: everything, halves, quarters, and so on down to single ones."""
    size = len(numbers)
    while size:
        for start in range(0, len(numbers), size):
            yield numbers[start : start + size]
        size = size // 2


def summary(shrunk: Shrunk) -> str:
    """Return what a schedule contains."""
    settings, result = shrunk.settings, shrunk.result
    faults = ", ".join(f"{number} x {kind}" for kind, number in sorted(result.faults.items())) or "no faults"
    return (
        f"{settings.hours:.3f} h, {settings.members} members, {settings.nodes} nodes, {len(result.step_numbers)} steps of users"
        f"{' and registers' if settings.registers else ''}, {faults} (after {shrunk.runs} runs)"
    )


def options(settings: Settings) -> str:
    """Return the options of the command that run a schedule."""
    found = [f"--hours {settings.hours:.5g} --members {settings.members} --nodes {settings.nodes} --faults"]
    found += settings.faults
    for name, numbers in (("faults", settings.dropped_faults), ("steps", settings.dropped_steps)):
        if numbers:
            found.append(f"--without-{name} {ranges(numbers)}")
    if not settings.registers:
        found.append("--without-registers")
    return " ".join(found)


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers as text: "1-3,7"."""
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def numbers_of(text: str) -> tuple[int, ...]:
    """Read what `ranges` returns. Raise ValueError."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
