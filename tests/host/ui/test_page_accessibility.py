"""The page of `wherry ui` by axe: every view and tab, dark and light, on a phone; its size, and its first paint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import axe
from tests.support.chromium import Chromium, Tab
from tests.support.ui_page import deployment, page_server, pod, tab
from wherry.testing import Cluster
from wherry.ui import files

MOST_BYTES = 250_000
PAINT_MS = 300
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
}
VIEWS = {
    "the cluster": ("/", "#problems .toggle"),
    "the inside": ("/?view=inside", "#inside .tables td"),
    "a story": ("/?show=Pod/default/big", "#panel .causes"),
    "a rollout": ("/?show=Deployment/default/web", "#panel .set .cell"),
    "traffic": ("/?show=Service/default/web", "#panel a.box"),
    "a terminal": ("/?show=Pod/default/bare", "#panel .terminal"),
    "a former moment": ("/?at=1700000000000", "#time .moments"),
}
TABS = {"a rollout": "Rollout", "traffic": "Traffic", "a terminal": "Terminal"}


@pytest.fixture(scope="module")
def page(browser: Chromium) -> Iterator[Tab]:
    with Cluster(nodes=2) as cluster:
        cluster.apply([deployment("web", 2), SERVICE, pod("bare")])
        cluster.apply(pod("big", resources={"requests": {"memory": "640Gi"}}))
        cluster.wait("deployment/web", "Available")
        cluster.wait("pod/big", "PodScheduled=False")
        with page_server(cluster.kubeconfig) as link, tab(browser, link) as shown:
            shown.wait_text("live", "#connection")
            yield shown


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_wrong(page: Tab, view: str) -> None:
    path, there = VIEWS[view]
    page.open(page.evaluate("location.origin") + path)
    page.wait("document.querySelector('#connection')?.className === 'live'")
    if view in TABS:
        page.click("[role=tab]", TABS[view])
    page.wait(f"document.querySelector('{there}') && !document.querySelector('[aria-busy]')")
    for scheme in ("light", "dark"):
        page.scheme(scheme)
        assert axe.violations(page) == [], scheme
    page.size(360, 740)
    try:
        assert axe.violations(page) == [], "a phone"
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("document.querySelector('#drawer').scrollWidth") <= 360
    finally:
        page.size(1200, 800)


def test_the_page_is_small() -> None:
    sizes = {name: len(content) for name, (content, _) in files.load().items()}
    assert sum(sizes.values()) < MOST_BYTES, sizes


def test_the_first_paint_comes_soon(page: Tab) -> None:
    """The best of three: other work of the machine delays each."""
    times = []
    for _ in range(3):
        page.open(page.evaluate("location.origin") + "/")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]"
        page.wait(f"{paint}?.startTime > 0")
        times.append(page.evaluate(f"{paint}.startTime"))
    assert min(times) < PAINT_MS, times
