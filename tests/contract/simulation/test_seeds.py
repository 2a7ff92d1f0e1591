"""Simulated clusters: some minutes with users and faults leave nothing broken, and a seed always gives the same trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from simulation.mutants import MUTANTS, SURVIVING

ROOT = Path(__file__).resolve().parents[3]


def simulate(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation", *options], cwd=ROOT, capture_output=True, text=True, timeout=280
    )


def test_a_seed_keeps_all_rules_and_repeats_its_trace() -> None:
    done = simulate(
        "--seeds", "1", "--repeat", "2", "--hours", "0.05", "--members", "2", "--nodes", "3", "--processes", "1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    assert len(lines) == 2 and len(set(lines)) == 1, done.stdout


def test_wrong_options_are_refused() -> None:
    done = simulate("--faults", "fire")
    assert done.returncode == 2 and "invalid choice: 'fire'" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("name", [each.name for each in MUTANTS if each.name not in SURVIVING])
def test_a_fault_in_the_code_is_found(name: str) -> None:
    done = simulate("--seeds", "1-4", "--hours", "0.3", "--members", "2", "--mutant", name)
    assert done.returncode == 1 and "seeds with violations" in done.stdout, done.stdout + done.stderr
