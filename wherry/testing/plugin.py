"""The pytest plugin: fixtures `kubernetes`, `async_kubernetes`, `namespace` and `kube_client`, and the marker `kubernetes`.

One cluster of real time and one of virtual time serve all tests of a process. After each test they return to the state before
it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from wherry.testing.errors import ClusterError
from wherry.testing.pytest_support import histories, marker
from wherry.testing.pytest_support.clusters import Clusters

if TYPE_CHECKING:
    from wherry.testing.async_view import AsyncView
    from wherry.testing.cluster import Cluster

NODES, TIME, HISTORY = "kubernetes_nodes", "kubernetes_time", "kubernetes_history"
_PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings."""
    parser.addini(NODES, "Number of simulated nodes of the fixture `kubernetes` (default 1).", default="1")
    parser.addini(TIME, "Time of the fixture `kubernetes`: real (default) or virtual.", default="real")
    parser.getgroup("kubernetes").addoption(
        "--kubernetes-history",
        dest=HISTORY,
        metavar="DIR",
        type=Path,
        help="Keep the history of each failed test's cluster in a file of this folder, for `wherry dev --replay`.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", marker.TEXT)


@pytest.fixture(scope="session")
def _kubernetes_clusters(pytestconfig: pytest.Config) -> Iterator[Clusters]:
    nodes, time = str(pytestconfig.getini(NODES)), str(pytestconfig.getini(TIME))
    if not nodes.isdigit():
        pytest.fail(f"{NODES} = {nodes}: it is a number of nodes", pytrace=False)
    if time not in ("real", "virtual"):
        pytest.fail(f"{TIME} = {time}: it is real or virtual", pytrace=False)
    clusters = Clusters(int(nodes), record=pytestconfig.getoption(HISTORY) is not None)
    yield clusters
    clusters.end()


@pytest.fixture
def kubernetes(request: pytest.FixtureRequest, _kubernetes_clusters: Clusters) -> Iterator[Cluster]:
    """A cluster that only this test changes."""
    wanted, stash = marker.wanted(request.node, str(request.config.getini(TIME))), request.node.stash
    try:
        with _kubernetes_clusters.use(wanted, lambda: not stash.get(_PASSED, False)) as cluster:
            yield cluster
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def async_kubernetes(kubernetes: Cluster) -> AsyncView:
    """The same cluster, with methods to await."""
    from wherry.testing.async_view import AsyncView

    return AsyncView(kubernetes)


@pytest.fixture
def namespace(kubernetes: Cluster) -> str:
    """Name of a new namespace."""
    name = "test"
    kubernetes.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    kubernetes.wait("serviceaccount/default", "exists", namespace=name)
    return name


@pytest.fixture
def kube_client(kubernetes: Cluster) -> Iterator[Any]:
    """An ApiClient of the package `kubernetes`, as the cluster's administrator."""
    try:
        from kubernetes import config
    except ImportError as error:
        raise pytest.UsageError("the fixture kube_client needs the package: pip install kubernetes") from error
    with config.new_client_from_config(str(kubernetes.kubeconfig)) as client:  # type: ignore[no-untyped-call]
        yield client


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the cluster to the report of a failed test, and keep its history."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    known = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and "kubernetes" in known:
        from wherry.testing import cluster
        from wherry.testing import report as state

        found = known["kubernetes"]
        if isinstance(found, cluster.Cluster):
            name = known.get("namespace", "")
            report.sections.append(("kubernetes", state.text(found, name if isinstance(name, str) else "")))
            if (folder := item.config.getoption(HISTORY)) is not None:
                report.sections.append(("kubernetes history", histories.save(found, folder, item.nodeid)))
    return report
