"""Pictures of the page of `wherry ui`: rollouts, and the way of connections to a Service's pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chromium import Chromium, Tab
from tests.support.ui_page import count, deployment, page_server, tab
from wherry.testing import Cluster

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
}
CLOSED = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "wall", "namespace": "default"},
    "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"]},
}
SOME = {
    **CLOSED,
    "spec": {**CLOSED["spec"], "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "till"}}}]}]},
}  # type: ignore[dict-item]
BIG = {"resources": {"requests": {"memory": "640Gi"}}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=2) as found:
        found.apply(deployment("web", 3))
        found.wait("deployment/web", "Available")
        yield found


@pytest.fixture(scope="module")
def page(cluster: Cluster, browser: Chromium) -> Iterator[Tab]:
    with page_server(cluster.kubeconfig) as link, tab(browser, link) as shown:
        shown.wait_text("live", "#connection")
        yield shown


def show(page: Tab, key: str, name: str) -> None:
    page.open(page.evaluate("location.origin") + f"/?show={key}")
    page.wait("document.querySelector('#connection')?.className === 'live'")
    page.click("[role=tab]", name)


def template(cluster: Cluster, **fields: object) -> None:
    cluster.patch("deployment/web", {"spec": {"template": {"spec": {"containers": [{"name": "c", **fields}]}}}})


def test_a_rollout_is_shown_as_it_happens(cluster: Cluster, page: Tab) -> None:
    show(page, "Deployment/default/web", "Rollout")
    page.wait_text("Complete · 3 of 3 pods are of the new template, 3 are available", "#panel")
    assert count(page, "#panel .set") == 1 and count(page, "#panel .cell.ok") == 3
    page.wait_text("Available is True", "#panel .conditions")
    template(cluster, image="nginx:2", **BIG)
    page.wait_text("Rolling out, at most 25% more and 25% fewer at a time · 1 of 3 pods", "#panel")
    page.wait("document.querySelectorAll('#panel .set').length === 2")
    page.wait_text("new, revision 2", "#panel .set:first-child")
    page.wait_text("c: nginx:2", "#panel .set:first-child")
    page.wait("document.querySelectorAll('#panel .set:first-child .cell.bad').length === 1")
    page.wait_text("old, revision 1", "#panel .set:last-child")
    page.wait_text("3 ready, 3 there, 3 wanted", "#panel .set:last-child")
    cluster.patch("deployment/web", {"spec": {"paused": True}})
    page.wait_text("Paused: kubectl rollout resume continues", "#panel")
    cluster.patch("deployment/web", {"spec": {"paused": None}})
    template(cluster, image="nginx:3", resources={"requests": {"memory": "16Mi"}})
    page.wait_text("Complete · 3 of 3 pods", "#panel", 40)
    page.wait_text("2 older ReplicaSets without pods: kubectl rollout undo goes back to one", "#panel")
    page.click("#panel .set .cell")
    page.wait_text("Pod web-", "#drawer-title")


def test_a_service_is_drawn_with_what_policies_stop(cluster: Cluster, page: Tab) -> None:
    cluster.apply(SERVICE)
    cluster.wait("service/web", lambda found: bool(found["spec"]["clusterIP"]))
    show(page, "Service/default/web", "Traffic")
    page.wait("document.querySelectorAll('#panel a.box.ok').length === 3")
    page.wait("document.querySelectorAll('#panel .line.open').length >= 4")
    for drawn in (cluster.get("service/web")["spec"]["clusterIP"], "http 80/TCP", "to port 8080"):
        page.wait(f"document.querySelector('#panel svg').textContent.includes('{drawn}')")
    page.wait_text("Nothing that the cluster's objects show stops connections.", "#panel")
    page.wait_text("3/3", "#services tbody")
    cluster.apply(CLOSED)
    page.wait("document.querySelectorAll('#panel .line.closed').length === 3")
    page.wait_text("network policy wall lets no connection reach port 8080", "#panel .causes")
    page.wait_text("Closed", "#services tbody")
    page.wait_text("network policy wall lets no connection reach port 8080", "#services tbody")
    page.wait_text("Service default/web", "#problems")
    cluster.apply(SOME)
    page.wait("document.querySelectorAll('#panel .line.limited').length === 3")
    page.wait_text("only pods with app=till of namespace default may connect", "#services tbody")
    page.wait("!document.querySelector('#problems li')")
    cluster.delete("networkpolicy/wall")
    page.wait("document.querySelectorAll('#panel .line.open').length >= 4")
    page.wait_text("Ready", "#services tbody")
    page.click("#panel a.box.ok")
    page.wait_text("Pod web-", "#drawer-title")
    cluster.delete("service/web")
    page.wait("document.querySelector('#services tbody').innerText.includes('Service web') === false")
