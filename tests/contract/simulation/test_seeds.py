"""Simulated clusters: some minutes with users and faults leave nothing broken, and a seed always gives the same trace."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.mutants import MUTANTS, SURVIVING

ROOT = Path(__file__).resolve().parents[3]


def simulate(*options: str, timeout: float = 280) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation", *options], cwd=ROOT, capture_output=True, text=True, timeout=timeout
    )


def repeated(seeds: str, *options: str, timeout: float = 280) -> list[str]:
    """Run seeds twice and return the lines of all runs, in which nothing is broken and no trace differs."""
    size = ("--hours", "0.05", "--members", "2", "--nodes", "3", "--processes", "1")
    done = simulate("--seeds", seeds, "--repeat", "2", *size, *options, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("seed ")]


def test_seeds_keep_all_rules_and_repeat_their_traces() -> None:
    lines = repeated("1-3")
    assert len(lines) == 6 and len(set(lines)) == 3, lines
    assert all(int(number) > 0 for line in lines for number in re.findall(r"'(?:events|lists|reads)': (\d+)", line))


def test_a_replayed_seed_shows_who_did_what() -> None:
    done = simulate("--seeds", "4", "--hours", "0.03", "--members", "1", "--nodes", "1", "--replay")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^ +\d+\.\d{3}  node-1 +creates minions/node-1   \[POST at control-1\]$", done.stdout, re.M)
    assert re.search(r"kubectl \(users\) +creates configmaps/", done.stdout)


def test_wrong_options_are_refused() -> None:
    done = simulate("--faults", "fire")
    assert done.returncode == 2 and "invalid choice: 'fire'" in done.stderr


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fifty_seeds_repeat_their_traces() -> None:
    lines = repeated("1-50", timeout=3500)
    assert len(lines) == 100 and len(set(lines)) == 50


@pytest.mark.long
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("name", [each.name for each in MUTANTS if each.name not in SURVIVING])
def test_a_fault_in_the_code_is_found(name: str) -> None:
    size = ("--seeds", "1-4", "--hours", "0.3", "--members", "2")
    done = simulate(*size, "--first", "--shrink", "0", "--mutant", name, timeout=1200)
    assert done.returncode == 1 and "seeds with violations" in done.stdout, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_schedule_of_a_violation_is_shrunk() -> None:
    mutant = ("--mutant", "objects-that-stop-matching-stay")
    done = simulate("--seeds", "1", "--hours", "0.3", "--members", "2", "--shrink", "60", *mutant, timeout=800)
    command = re.search(r"^  scripts/simulate (--seeds 1 .*) --replay$", done.stdout, re.M)
    assert command is not None and "shortest schedule found in 60 s: 0.0" in done.stdout, done.stdout + done.stderr
    again = simulate(*command[1].split(), "--shrink", "0", *mutant)
    assert again.returncode == 1 and "watch gap" in again.stdout, again.stdout + again.stderr
