"""The page of `wherry ui` with few permissions, with many pods, and when the API server goes away and comes back."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path

import pytest

from kube.uid import new_uid
from tests.support.chromium import Chromium
from tests.support.ui_page import count, deployment, page_server, pod, tab, user_kubeconfig
from wherry.testing import Cluster

NODES, PODS, CHANGED = 40, 10_000, 50
LONGEST_MS = 500
"""Longest that the page may not react to input while pods change; 212 were measured beside other work for 14 cores."""
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
            shown.click("#time summary")
            shown.wait_text("Deployment shop/till", "#time .moments")
            assert "hidden" not in shown.text() and "Deployment web" not in shown.text()
            shown.click(".cell[data-open]")
            shown.wait_text("nothing is wrong with it", "#panel")
            shown.open(shown.evaluate("location.origin") + "/?namespace=default&show=Pod/default/hidden")
            shown.wait_text(
                'User "jane" cannot get resource "pods" in API group "" in the namespace "default"', "#panel"
            )
            shown.wait_text('User "jane" cannot list resource "pods" in API group "" in the namespace "default"')
            assert count(shown, ".cell[data-open]") == 0


def on_port(cluster: Cluster, port: int) -> Cluster:
    """Return a cluster that will serve its API on a port: one that is restarted has the same."""
    cluster.running._port = port
    return cluster


def test_the_page_recovers_when_the_api_server_was_restarted(browser: Chromium, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with contextlib.ExitStack() as stack:
        with on_port(Cluster(nodes=1), port) as cluster:
            cluster.apply(pod("before"))
            cluster.wait("pod/before", "Ready")
            config = tmp_path / "config"
            config.write_text(cluster.kubeconfig.read_text())
            cluster.save(tmp_path / "state")
            shown = stack.enter_context(tab(browser, stack.enter_context(page_server(config))))
            shown.wait("document.querySelector('[aria-label=\"default/before: Running\"]')")
            shown.wait_text("live", "#connection")
        shown.wait_text("not live, trying again", "#connection")
        assert count(shown, '[aria-label="default/before: Running"]') == 1, "the last state stays"
        with on_port(Cluster.load(tmp_path / "state"), port) as again:
            again.apply(pod("after"))
            shown.wait("document.querySelector('[aria-label=\"default/after: Running\"]')", 40)
            shown.wait("document.querySelector('#connection').className === 'live'")
            again.delete("pod/before")
            shown.wait("!document.querySelector('[aria-label^=\"default/before\"]')")


def copies(cluster: Cluster, key: str, name: str, number: int, **replaced: str) -> None:
    """Store copies of an object with names of their own; nothing runs them, so that thousands are there at once."""

    async def store() -> None:
        engine = cluster.running.engine.store
        item = await engine.get(key)
        assert item is not None
        for index in range(number):
            value = re.sub(rb'"uid":"[0-9a-f-]{36}"', b'"uid":"%s"' % new_uid().encode(), item.value, count=1)
            for former, new in {f'"name":"{name}"': f'"name":"{name}-{index}"', **replaced}.items():
                value = value.replace(former.encode(), new.format(index % NODES).encode())
            await engine.create(f"{key}-{index}", value)

    cluster.run(store())


@pytest.mark.long
def test_thousands_of_pods_are_shown_and_change_without_a_stutter(browser: Chromium) -> None:
    with Cluster(nodes=1) as cluster:
        cluster.apply(pod("web"))
        cluster.wait("pod/web", "Ready")
        copies(cluster, "/registry/minions/node-1", "node-1", NODES)
        copies(cluster, "/registry/pods/default/web", "web", PODS, **{'"nodeName":"node-1"': '"nodeName":"node-1-{}"'})
        with page_server(cluster.kubeconfig) as link, tab(browser, link) as shown:
            shown.wait(f"document.querySelectorAll('.tile .cell.ok').length === {PODS + 1}", 120)
            assert count(shown, ".tile") == NODES + 1
            shown.evaluate("window.longest = 0")
            for index in range(CHANGED):
                unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
                cluster.patch(f"pod/web-{index}", unready, subresource="status")
            shown.wait(f"document.querySelectorAll('.tile .cell.ok').length === {PODS + 1 - CHANGED}")
            assert shown.evaluate("window.longest") < LONGEST_MS
            shown.key("/", "/")
            shown.type("web-9999")
            shown.wait("document.querySelectorAll('.tile .cell').length === 1")
