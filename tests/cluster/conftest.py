"""One cluster of one machine and one of three for the tier, a namespace of its own for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support import older_version
from tests.support.cluster import Cluster, cluster, eventually
from tests.support.machines import Machines, machines

THREE = {
    "test_gateway",
    "test_join",
    "test_machines_network",
    "test_node_failure",
    "test_security_check_worker",
    "test_sonobuoy",
    "test_tasks_several_nodes",
}
"""Modules of the cluster of three machines."""
OWN = {
    "test_control_planes",
    "test_dual_stack",
    "test_other_network",
    "test_other_proxies",
    "test_storage",
    "test_upgrade",
    "test_upgrade_members",
}
"""Modules whose clusters are their own."""
LAST = {"test_addons", "test_autoscaling", "test_churn", "test_helm", "test_python_clients", "test_tasks"}
"""Modules of the shared cluster that the worker runs that has finished first, on a shared cluster of its own."""
PAGES = {"test_troubleshooting", "test_typed_pages"}
"""Modules of the cluster on which the documents' commands are typed; the last one resets it."""
_numbers = itertools.count(1)


class Clusters(LoadScopeScheduling):
    """Scheduler that assigns the tests of each cluster to one worker, and those with clusters of their own to a third.

    They wait most of the time, for instance until a node is given up, and clusters know nothing of each other.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = Path(nodeid.partition("::")[0]).stem
        for scope, modules in (("three", THREE), ("own", OWN), ("last", LAST), ("pages", PAGES)):
            if module in modules:
                return scope
        return "shared"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Clusters:
    return Clusters(config, log)


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the former version."""
    return older_version.checkout(tmp_path_factory.mktemp("older") / "tree")


@pytest.fixture(scope="session")
def shared() -> Iterator[Cluster]:
    with cluster(f"wherry-t{os.getpid()}") as made:
        yield made


@pytest.fixture(scope="session")
def pages() -> Iterator[Cluster]:
    """The cluster of a reader of the documents."""
    with cluster(f"wherry-k{os.getpid()}") as made:
        yield made


@pytest.fixture(scope="session")
def three() -> Iterator[Machines]:
    """Three machines, the first of which is the control plane; a test that breaks something mends it."""
    with machines(f"wherry-m{os.getpid()}", (0, 0, 1)) as made:
        yield made


@pytest.fixture
def ns3(three: Machines) -> Iterator[str]:
    """A namespace on the three machines, deleted afterwards."""
    yield from _namespace(three.first)


@pytest.fixture
def ns(shared: Cluster) -> Iterator[str]:
    """A namespace with its default service account, deleted afterwards."""
    yield from _namespace(shared)


def _namespace(on: Cluster) -> Iterator[str]:
    name = f"t{next(_numbers)}"
    on.kubectl("create", "namespace", name)
    eventually(
        lambda: on.kubectl("get", "serviceaccount", "default", "-n", name, check=False).returncode == 0,
        "the namespace's default service account",
    )
    yield name
    on.kubectl("delete", "namespace", name, "--wait=false", check=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show what the daemons said last beside a failure."""
    report = yield
    found = getattr(item, "funcargs", {})
    several = [found[name] for name in ("shared", "pages") if name in found] + list(found.get("three", ()))
    for made in several if report.failed else []:
        for daemon in ("control", "agent", "netproxy"):
            tail = "\n".join(made.log(daemon).splitlines()[-15:])
            if tail:
                report.sections.append((f"{made.host.name} {daemon}.log", tail))
    return report
