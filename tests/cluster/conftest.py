"""One cluster for the tier, a namespace of its own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster, eventually

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared() -> Iterator[Cluster]:
    with cluster(f"wherry-t{os.getpid()}") as made:
        yield made


@pytest.fixture
def ns(shared: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace with its default service account, deleted afterwards."""
    name = f"t{next(_numbers)}"
    shared.kubectl("create", "namespace", name)
    eventually(
        lambda: shared.kubectl("get", "serviceaccount", "default", "-n", name, check=False).returncode == 0,
        "the namespace's default service account",
    )
    yield name
    shared.kubectl("delete", "namespace", name, "--wait=false", check=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show what the daemons said last beside a failure."""
    report = yield
    made = getattr(item, "funcargs", {}).get("shared")
    if report.failed and made is not None:
        for daemon in ("control", "agent", "netproxy"):
            tail = "\n".join(made.log(daemon).splitlines()[-15:])
            report.sections.append((f"{daemon}.log", tail))
    return report
