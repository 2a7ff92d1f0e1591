"""Simulated clusters: some minutes with users and faults leave nothing broken, and a seed always gives the same trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def simulate(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation", *options], cwd=ROOT, capture_output=True, text=True, timeout=280
    )


def test_seeds_keep_all_rules_and_repeat_their_traces() -> None:
    done = simulate(
        "--seeds", "1-2", "--repeat", "2", "--hours", "0.1", "--members", "2", "--nodes", "3", "--processes", "1"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    assert len(lines) == 4 and len(set(lines)) == 2, done.stdout


def test_wrong_options_are_refused() -> None:
    done = simulate("--faults", "fire")
    assert done.returncode == 2 and "invalid choice: 'fire'" in done.stderr
