"""The Gateway API's conformance tests, its tests of definitions, and those of Ingress, as programs built from their sources.

`sudo scripts/test --gateway-api DIR`; five minutes, with the Ingress tests twenty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import gateway_api
from tests.conformance.gateway_api import GIVEN, REPORTS, SUITE, check
from tests.support.machines import Machines, machines

pytestmark = [
    pytest.mark.timeout(0),
    pytest.mark.skipif(not GIVEN, reason="WHERRY_GATEWAY_API names no folder (scripts/test --gateway-api)"),
]
PROFILE = 300
"""Number of tests of the profile with Wherry's features and of their parts, at least."""


@pytest.fixture(scope="module")
def one() -> Iterator[Machines]:
    with machines(f"wherry-g{os.getpid()}", (0,)) as made:
        gateway_api.load(made)
        yield made


@pytest.fixture
def two() -> Iterator[Machines]:
    with machines(f"wherry-h{os.getpid()}", (0, 0)) as made:
        gateway_api.load(made)
        yield made


def test_the_profile_passes_on_one_machine(one: Machines) -> None:
    about = {"organization": "wherry", "project": "wherry", "url": "https://example.invalid", "version": "main"}
    options = [text for name, value in about.items() for text in (f"-{name}", value)]
    report = ("-report-output", str(REPORTS / "report.yaml"), "-contact", "none")
    check(gateway_api.run(one.first, "conformance.test", "profile", *SUITE, *options, *report), PROFILE)


def test_the_ingress_tests_pass(one: Machines) -> None:
    options = ("-ingress-class", "wherry", "-test.v", "-wait-time-for-ready", "90s")
    # It reads the features from its folder.
    check(gateway_api.run(one.first, "ingress.test", "ingress", *options, folder=Path(GIVEN)), 1)


def test_wherrys_definitions_validate_as_upstreams(one: Machines) -> None:
    selected = ("-test.v", "-test.run", "Gateway|HTTP|BackendObject")
    check(
        gateway_api.run(one.first, "cel.test", "cel-wherrys", *selected, folder=gateway_api.tree() / "tests/cel"), 100
    )


def test_upstreams_definitions_are_validated_as_by_upstream(one: Machines) -> None:
    """Runs last on its machine: upstream's definitions replace Wherry's."""
    tree = gateway_api.tree()
    definitions = str(tree / "config/crd/standard")
    one.first.kubectl("apply", "--server-side", "--force-conflicts", "-f", definitions)
    check(gateway_api.run(one.first, "cel.test", "cel-upstreams", "-test.v", folder=tree / "tests/cel"), 100)
    check(gateway_api.run(one.first, "crd.test", "crd", "-test.v", folder=tree / "tests/crd"), 1)


def test_the_profile_passes_from_each_of_two_machines(two: Machines) -> None:
    for machine in two:
        check(gateway_api.run(machine, "conformance.test", f"profile-{machine.node}", *SUITE), PROFILE)
