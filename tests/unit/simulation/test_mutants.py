"""The mutants of the simulation fit the modules that they change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulation.changed_imports import Mutant
from simulation.mutants import MUTANTS, SURVIVING

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_of_its_module_which_stays_valid(mutant: Mutant) -> None:
    path = ROOT / f"{mutant.module.replace('.', '/')}.py"
    source = path.read_text()
    changed = mutant.changed(source)
    assert changed != source
    compile(changed, str(path), "exec")


def test_a_mutant_of_a_text_that_is_gone_is_reported() -> None:
    with pytest.raises(ValueError, match="0 times: correct the mutant m"):
        Mutant("m", "kube.leases", "what is not there", "").changed("")


def test_the_documentation_says_of_each_mutant_whether_it_is_found() -> None:
    rows = re.findall(r"^\| ([a-z-]+) \| (.+) \|$", (ROOT / "docs/simulation.md").read_text(), re.M)
    documented = {name: text for name, text in rows if name in {mutant.name for mutant in MUTANTS}}
    assert documented.keys() == {mutant.name for mutant in MUTANTS}
    missed = {name: text.removeprefix("not found: ") for name, text in documented.items() if "not found" in text}
    assert missed == SURVIVING
