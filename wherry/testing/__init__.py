"""A Kubernetes cluster for tests, in the test's own process: real API server, controllers and scheduler, simulated nodes.

    from wherry.testing import Cluster, Exit, Run

    with Cluster(nodes=3) as cluster:
        cluster.pods.script("web-*", [Exit(1), Run()])
        cluster.apply("deploy.yaml")
        cluster.wait("deployment/web", "Available")

docs/testing.md is the guide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wherry.testing.async_cluster import AsyncCluster
    from wherry.testing.case import KubernetesTestCase
    from wherry.testing.cluster import Cluster
    from wherry.testing.errors import ClusterError, WaitError
    from wherry.testing.history.history import History
    from wherry.testing.nodes.exec_calls import AsyncExec, Exec, Output
    from wherry.testing.nodes.scripts import Exit, Pull, PullError, Run, Start

__all__ = [
    "AsyncCluster",
    "AsyncExec",
    "Cluster",
    "ClusterError",
    "Exec",
    "Exit",
    "History",
    "KubernetesTestCase",
    "Output",
    "Pull",
    "PullError",
    "Run",
    "Start",
    "WaitError",
]

_MODULES = {
    "AsyncCluster": "wherry.testing.async_cluster",
    "Cluster": "wherry.testing.cluster",
    "KubernetesTestCase": "wherry.testing.case",
    "ClusterError": "wherry.testing.errors",
    "History": "wherry.testing.history.history",
    "WaitError": "wherry.testing.errors",
    **dict.fromkeys(("AsyncExec", "Exec", "Output"), "wherry.testing.nodes.exec_calls"),
    **dict.fromkeys(("Exit", "Pull", "PullError", "Run", "Start"), "wherry.testing.nodes.scripts"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is used: the control plane takes half a second to import."""
    import importlib

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
