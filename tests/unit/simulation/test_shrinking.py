"""Shrinking a schedule leaves out everything that the violation does not need."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from simulation.oracles.violations import Violation
from simulation.run import Result, Settings
from simulation.shrinking import numbers_of, options, parts, ranges, shrink, summary

FAULTS, STEPS = range(8), range(20)


def run(settings: Settings) -> Result:
    """Return the result of a run that breaks a rule if fault 3 of kind pause, step 7 and two nodes are there."""
    faults = [number for number in FAULTS if number not in settings.dropped_faults]
    steps = [number for number in STEPS if number not in settings.dropped_steps]
    broken = 3 in faults and "pause" in settings.faults and 7 in steps and settings.nodes >= 2 and settings.hours >= 0.1
    violations = [Violation("fencing", "too late", 360.0)] if broken else []
    return Result(1, violations=violations, fault_numbers=faults, step_numbers=steps)


def test_the_shortest_schedule_has_what_the_violation_needs() -> None:
    settings = Settings(hours=1.0)
    found = shrink(settings, run(settings), "fencing", run, 60)
    assert found.result.fault_numbers == [3] and found.result.step_numbers == [7]
    assert found.settings.faults == ("pause",) and (found.settings.nodes, found.settings.members) == (2, 1)
    assert not found.settings.registers and found.settings.hours < 0.11
    assert "1 members, 2 nodes, 1 steps of users" in summary(found)


def test_shrinking_ends_with_its_budget() -> None:
    settings = Settings(hours=1.0)
    found = shrink(settings, run(settings), "fencing", run, -1)
    assert found.runs == 0 and found.settings == replace(settings, stop_at="fencing")


def test_the_options_run_the_schedule() -> None:
    settings = Settings(hours=0.25, faults=("kill",), dropped_steps=(1, 2, 3, 7), registers=False)
    assert options(settings) == (
        "--hours 0.25 --members 3 --nodes 5 --faults kill --without-steps 1-3,7 --without-registers"
    )


@pytest.mark.parametrize("numbers", [(), (5,), (1, 2, 3), (1, 3, 4, 9)])
def test_numbers_are_written_as_ranges(numbers: tuple[int, ...]) -> None:
    assert numbers_of(ranges(numbers)) == numbers


def test_parts_are_everything_then_halves_then_single_ones() -> None:
    assert [list(part) for part in parts([1, 2, 3, 4])] == [[1, 2, 3, 4], [1, 2], [3, 4], [1], [2], [3], [4]]
    assert list(parts([])) == []
