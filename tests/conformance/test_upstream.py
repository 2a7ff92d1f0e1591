"""Upstream's conformance tests, as the program that upstream made of them, against a cluster of two machines.

`sudo scripts/test --conformance`; `-- -k serial` runs those of them that want the cluster to themselves. Their output and
reports stay in .cache/conformance (reports, or VERSION/reports where programs were given). WHERRY_CONFORMANCE_FOCUS selects
tests of the group `beyond` by name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance.mirror import OPTION, mirror
from tests.conformance.running import FOCUS, GROUPS, PROCESSES, log_of, named_secrets, prepare, run, unexpected
from tests.conformance.upstream import chosen
from tests.support.machines import Machines, at_once, machines


@pytest.fixture(scope="session")
def two() -> Iterator[Machines]:
    """Two machines with the tests' images."""
    _, archive = prepare()
    with machines(f"wherry-c{os.getpid()}", (0, 0), each=(OPTION,)) as made:
        at_once(lambda machine: machine.wherry("image", "load", str(archive), timeout=600), made.all)
        with mirror(made.first, archive), named_secrets(made.first):
            yield made


@pytest.mark.timeout(0)
@pytest.mark.parametrize("group", GROUPS)
def test_upstreams_tests_pass(two: Machines, group: str) -> None:
    upstream = chosen()
    if group == "beyond" and upstream.minor < 24:
        pytest.skip("ginkgo 1 knows no labels")
    results = run(two.first, group, GROUPS[group], 1 if group == "serial" else PROCESSES, nodes=len(two))
    assert not unexpected(upstream, results), f"see {log_of(group)}"
    if group == "beyond":
        assert len(results) > (0 if FOCUS else 500)
        return
    alone = [name for name in upstream.conformance_tests() if "[Serial]" in name or "[Disruptive]" in name]
    wanted = len(alone) if group == "serial" else len(upstream.conformance_tests()) - len(alone)
    assert len(results) == wanted, "not all of upstream's tests ran"
