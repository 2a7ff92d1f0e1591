"""The page of `wherry ui` with few permissions, with many pods, and when the API server goes away and comes back."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.chromium import Chromium
from tests.support.ui_page import count, deployment, page_server, pod, tab, user_kubeconfig
from wherry.testing import Cluster

PODS = 2000
VIEW = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "jane-view", "namespace": "shop"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
}


def test_a_user_of_one_namespace_sees_it_and_nothing_else(browser: Chromium, tmp_path: Path) -> None:
    with Cluster(nodes=2) as cluster:
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        cluster.apply([VIEW, deployment("till", 2, "shop"), deployment("web", 1), pod("hidden")])
        cluster.wait("deployment/till", "Available", namespace="shop")
        config = user_kubeconfig(cluster, "jane", (), tmp_path / "jane", "shop")
        with page_server(config) as link, tab(browser, link) as shown:
            shown.wait_text("live", "#connection")
            shown.wait_text("You may not list the pods of all namespaces: the page shows namespace shop.", "#notes")
            shown.wait("document.querySelectorAll('.cell[data-open]').length === 2")
            shown.wait_text('nodes: nodes is forbidden: User "jane" cannot list', "#notes")
            shown.wait_text("Deployment till", "#workloads")
            assert "hidden" not in shown.text() and "Deployment web" not in shown.text()
            shown.click(".cell[data-open]")
            shown.wait_text("nothing is wrong with it", "#panel")
            shown.open(shown.evaluate("location.origin") + "/?namespace=default&show=Pod/default/hidden")
            shown.wait_text(
                'User "jane" cannot get resource "pods" in API group "" in the namespace "default"', "#panel"
            )
            shown.wait_text('User "jane" cannot list resource "pods" in API group "" in the namespace "default"')
            assert count(shown, ".cell[data-open]") == 0


def test_the_page_recovers_when_the_api_server_was_restarted(browser: Chromium, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Cluster(nodes=1, port=port) as cluster:
        cluster.apply(pod("before"))
        cluster.wait("pod/before", "Ready")
        config = tmp_path / "config"
        config.write_text(cluster.kubeconfig.read_text())
        cluster.save(tmp_path / "state")
        running = page_server(config)
        link = running.__enter__()
        opened = tab(browser, link)
        shown = opened.__enter__()
        shown.wait("document.querySelector('[aria-label=\"default/before: Running\"]')")
        shown.wait_text("live", "#connection")
    try:
        shown.wait_text("not live, trying again", "#connection")
        assert count(shown, '[aria-label="default/before: Running"]') == 1, "the last state stays"
        with Cluster.load(tmp_path / "state", port=port) as again:
            again.apply(pod("after"))
            shown.wait("document.querySelector('[aria-label=\"default/after: Running\"]')", 40)
            shown.wait("document.querySelector('#connection').className === 'live'")
            again.delete("pod/before")
            shown.wait("!document.querySelector('[aria-label^=\"default/before\"]')")
            opened.__exit__(None, None, None)
    finally:
        running.__exit__(None, None, None)


@pytest.mark.parametrize("pods", [PODS])
def test_thousands_of_pods_are_shown_and_change_without_a_stutter(browser: Chromium, pods: int) -> None:
    with Cluster(nodes=20) as cluster:
        cluster.apply(deployment("web", pods))
        cluster.wait("deployment/web", f"status.readyReplicas={pods}", timeout=120)
        with page_server(cluster.kubeconfig) as link, tab(browser, link) as shown:
            shown.wait(f"document.querySelectorAll('.tile .cell.ok').length === {pods}", 60)
            shown.evaluate("window.longest = 0")
            names = [each["metadata"]["name"] for each in cluster.list("pods")][:50]
            for name in names:
                cluster.pods.set_ready(name, ready=False)
            shown.wait(f"document.querySelectorAll('.tile .cell.ok').length === {pods - len(names)}", 60)
            assert shown.evaluate("window.longest") < 500
            shown.key("/", "/")
            shown.type(names[0])
            shown.wait("document.querySelectorAll('.tile .cell').length === 1")
