"""The inside view of the page of `wherry ui`."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.chromium import Chromium, Tab
from tests.support.ui_page import deployment, page_server, tab, user_kubeconfig
from wherry.testing import Cluster
from wherry.ui.sources import PARTS, ROOT


def number(page: Tab, box: str) -> str:
    """Return the texts of the box with a title."""
    found = f"[...document.querySelectorAll('#inside .box')].find(e => e.textContent.includes('{box}'))"
    return str(page.evaluate(f"[...{found}.querySelectorAll('text')].map(e => e.textContent).join(' | ')"))


def test_numbers_flow_and_a_click_shows_the_file(browser: Chromium, tmp_path: Path) -> None:
    with (
        Cluster(nodes=1) as cluster,
        page_server(cluster.kubeconfig) as link,
        tab(browser, link) as page,
    ):
        page.wait_text("live", "#connection")
        page.click("nav a", "Inside")
        page.wait("location.search === '?view=inside' && document.querySelector('#problems').hidden")
        page.wait_text("rates follow with the next reading", "#inside")
        cluster.apply(deployment("web", 3))
        cluster.wait("deployment/web", "Available")
        page.wait_text("rates of the last", "#inside")
        page.wait(
            "[...document.querySelectorAll('#inside .number')].some(e => /^[0-9.]+ requests\\/s$/.test(e.textContent))"
        )
        assert "keys wait" in number(page, "controllers") and "– keys" not in number(page, "controllers")
        assert "0 pods wait" in number(page, "scheduler")
        # Metrics are those of the process, in which another test's store may have had commits.
        assert "Commits and fsync: this store is" not in page.text() or "fsync –" in number(page, "store")
        page.wait_text("Agent: ", "#inside .unknown")  # simulated nodes have no metrics
        page.wait_text("By default a proxy serves its metrics on its node's loopback address only", "#inside .unknown")
        page.wait_text("workload-high", "#inside .tables")
        page.wait_text("deployment", "#inside .tables")
        page.click("#inside .box", "priority and fairness")
        page.wait_text("control/fairness/fairness.py", "#source-title")
        shown = page.evaluate("document.querySelector('#source pre').textContent")
        assert shown == (ROOT / PARTS["fairness"]).read_text()
        page.scheme("light")
        folder = Path(os.environ.get("WHERRY_SCREENSHOTS") or tmp_path)
        page.click("#source button", "Close the file")
        assert page.evaluate("document.activeElement.dataset.part") == "fairness"
        page.evaluate("document.querySelector('#inside').scrollIntoView()")
        page.screenshot(folder / "ui-inside.png")
        page.click("nav a", "Cluster")
        page.wait_text("Deployment web", "#workloads")


def test_without_the_right_to_read_metrics_it_says_so(browser: Chromium, tmp_path: Path) -> None:
    with Cluster(nodes=1) as cluster:
        config = user_kubeconfig(cluster, "jane", (), tmp_path / "jane", "default")
        with page_server(config) as link, tab(browser, link) as page:
            page.wait("document.querySelector('#connection').className")
            page.open(page.evaluate("location.origin") + "/?view=inside")
            page.wait_text('API server: forbidden: User "jane" cannot get path "/metrics"', "#inside .unknown")
            assert "– pods wait" in number(page, "scheduler")
