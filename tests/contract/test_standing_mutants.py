"""Mended faults, reintroduced one at a time in a process of its own: the tests of each must fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.standing_mutants import STANDING, Standing

ROOT = Path(__file__).parents[2]
FAILED = 1
"""pytest's exit code of tests that ran and failed."""
CASES = [pytest.param(each, id=each.name, marks=[pytest.mark.long] if each.long else []) for each in STANDING]


@pytest.mark.parametrize("mutant", STANDING, ids=lambda mutant: mutant.name)
def test_what_a_mutant_changes_is_there(mutant: Standing) -> None:
    assert mutant.changed(mutant.source()) != mutant.source()
    compile(mutant.changed(mutant.source()), mutant.module, "exec")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", CASES)
def test_a_mutant_is_caught(mutant: Standing) -> None:
    options = ["-k", mutant.only] if mutant.only else []
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "tests.support.mutated_import",
        "-p",
        "no:cacheprovider",
    ]
    ended = subprocess.run(
        [*command, *options, mutant.tests],
        cwd=ROOT,
        env=os.environ | {"WHERRY_MUTANT": mutant.name},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ended.returncode == FAILED and "FAILED" in ended.stdout, ended.stdout[-2000:] + ended.stderr[-500:]
