"""Upstream's conformance tests, as the program that upstream made of them, against a cluster of two machines.

`sudo scripts/test --conformance`; `-- -k serial` runs the 20 of them that want the cluster to themselves. Their output and
reports stay in .cache/conformance/reports.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance.running import KNOWN, REPORTS, named_secrets, prepare, run
from tests.support.machines import Machines, at_once, machines


@pytest.fixture(scope="session")
def two() -> Iterator[Machines]:
    """Two machines with the tests' images."""
    archive = prepare()
    with machines(f"wherry-c{os.getpid()}", (0, 0)) as made:
        at_once(lambda machine: machine.wherry("image", "load", str(archive), timeout=600), made.all)
        with named_secrets(made.first):
            yield made


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("group", "focus", "skip", "processes", "tests"),
    [
        ("parallel", r"\[Conformance\]", r"\[Serial\]|\[Disruptive\]", 4, 291),
        ("serial", r"\[Serial\].*\[Conformance\]|\[Disruptive\].*\[Conformance\]", "", 1, 20),
    ],
)
def test_upstreams_tests_pass(two: Machines, group: str, focus: str, skip: str, processes: int, tests: int) -> None:
    passed, failed = run(two.first, REPORTS / group, focus, skip, processes, nodes=len(two))
    print(f"{group}: {len(passed)} passed, {len(failed)} failed")
    assert len(passed) + len(failed) == tests, "not all of upstream's tests ran"
    unexpected = [name for name in failed if not any(known in name for known in KNOWN)]
    assert not unexpected, f"see {REPORTS / group}.log"
