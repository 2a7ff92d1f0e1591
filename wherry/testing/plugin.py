"""The pytest plugin: fixtures `kubernetes`, `async_kubernetes`, `namespace` and `kube_client`, and the marker `kubernetes`.

One cluster serves all tests of a process. After each test it returns to the state before it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from wherry.testing.async_view import AsyncView
    from wherry.testing.cluster import Cluster, Snapshot

INI = "kubernetes_nodes"
_MARKER = (
    "kubernetes(nodes=N, load=SOURCE): the test's cluster has N simulated nodes, and the objects of a source "
    "(a path, YAML text, dicts) when it begins"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of nodes to the configuration."""
    parser.addini(INI, "Number of simulated nodes of the fixture `kubernetes` (default 1).", default="1")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


class _Shared:
    """The cluster of all tests, with the state that it returns to."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.cluster: Cluster | None = None
        self._snapshot: Snapshot | None = None

    def begin(self) -> Cluster:
        """Return the cluster, which is started for the first test."""
        if self.cluster is None:
            from wherry.testing.cluster import Cluster

            cluster = Cluster(self._nodes)
            cluster.__enter__()
            self.cluster, self._snapshot = cluster, cluster.snapshot()
        return self.cluster

    def reset(self) -> None:
        """Return to the state before the test; a cluster that cannot is replaced for the next one."""
        from wherry.testing.errors import ClusterError

        assert self._snapshot is not None
        try:
            self._snapshot.restore()
        except ClusterError:
            self.end()
            raise

    def end(self) -> None:
        cluster, self.cluster = self.cluster, None
        if cluster is not None:
            cluster.__exit__(None, None, None)


@pytest.fixture(scope="session")
def _shared_cluster(pytestconfig: pytest.Config) -> Iterator[_Shared]:
    text = str(pytestconfig.getini(INI))
    if not text.isdigit():
        raise pytest.UsageError(f"{INI} = {text}: it is a number of nodes")
    shared = _Shared(int(text))
    yield shared
    shared.end()


@pytest.fixture
def kubernetes(request: pytest.FixtureRequest, _shared_cluster: _Shared) -> Iterator[Cluster]:
    """A cluster that only this test changes."""
    nodes, load = _marked(request)
    cluster = _shared_cluster.begin()
    try:
        for _ in range(max(0, nodes - len(cluster.nodes))):
            cluster.add_node()
        if load is not None:
            cluster.apply(load)
        yield cluster
    finally:
        _shared_cluster.reset()


def _marked(request: pytest.FixtureRequest) -> tuple[int, Any]:
    marker = request.node.get_closest_marker("kubernetes")
    known = dict(marker.kwargs) if marker is not None else {}
    nodes, load = known.pop("nodes", 0), known.pop("load", None)
    if known or (marker is not None and marker.args) or not isinstance(nodes, int):
        raise pytest.UsageError(f"wrong marker on {request.node.nodeid}: write {_MARKER.partition(':')[0]}")
    return nodes, load


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
    """Add the state of the cluster to the report of a failed test."""
    report = yield
    known = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and "kubernetes" in known:
        from wherry.testing import cluster
        from wherry.testing import report as state

        if isinstance(known["kubernetes"], cluster.Cluster):
            name = known.get("namespace", "")
            report.sections.append(
                ("kubernetes", state.text(known["kubernetes"], name if isinstance(name, str) else ""))
            )
    return report
