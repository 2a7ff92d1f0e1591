"""The time slider of the page of `wherry ui`: former states that the page has recorded, and the journal's decisions."""

from __future__ import annotations

from tests.support.chromium import Chromium, Tab
from tests.support.ui_page import deployment, page_server, pod, tab
from wherry.testing import Cluster

READY = "document.querySelector('[aria-label=\"default/{}: Running\"]')"


def move(page: Tab, at: int) -> None:
    """Move the slider to a moment as a person does: its value changes, and it sends an event."""
    page.evaluate(
        f"""(() => {{ const slider = document.querySelector('#time input');
        slider.value = {at}; slider.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"""
    )


def now(page: Tab) -> int:
    return int(page.evaluate("Date.now()"))


def test_a_former_moment_has_its_objects_and_decisions(browser: Chromium) -> None:
    with Cluster(nodes=1) as cluster:
        cluster.apply(pod("early"))
        cluster.wait("pod/early", "Ready")
        opened = cluster.now.timestamp()
        with page_server(cluster.kubeconfig) as link, tab(browser, link) as page:
            page.wait(READY.format("early"))
            page.click("#time summary")
            page.wait_text("Pod default/early", "#time .moments")
            page.wait_text("scheduler", "#time .moments")
            page.wait("!document.querySelector('#time .moments').innerText.includes('default/late')")
            # The slider has seconds: something else has to happen in another one.
            between = now(page) // 1000 * 1000 + 1000
            page.wait(f"Date.now() > {between} + 100")
            cluster.apply(pod("late"))
            page.wait(READY.format("late"))
            cluster.delete("pod/early")
            page.wait("!document.querySelector('[aria-label^=\"default/early\"]')")
            later = now(page) // 1000 * 1000 + 1000
            page.wait(f"Date.now() > {later} + 100")
            page.evaluate("document.querySelector('#time select').dispatchEvent(new Event('change'))")
            move(page, between)
            page.wait(READY.format("early"))
            page.wait("!document.querySelector('[aria-label^=\"default/late\"]')")
            page.wait_text("A former moment: details that are opened are those of now.", "#notes")
            page.wait_text("as it was at", "#time output")
            assert f"at={between}" in page.evaluate("location.search")
            page.wait("!document.querySelector('#time .moments').innerText.includes('default/late')")
            move(page, later)
            page.wait(READY.format("late"))
            page.wait_text("Pod default/late", "#time .moments")
            page.wait_text("deleted", "#time .moments")
            cluster.apply(deployment("web", 1))
            cluster.wait("deployment/web", "Available")
            assert "Deployment web" not in page.text(), "what happens later does not change a former moment"
            page.click("#time button", "Now")
            page.wait_text("Deployment web", "#workloads")
            assert "at=" not in page.evaluate("location.search")
            page.open(page.evaluate("location.origin") + f"/?at={int(opened * 1000) - 60_000}")
            page.wait_text("States of objects at this moment are not recorded: the page was not open.", "#notes")
            page.wait_text("What was wrong is not known", "#problems-count")


def test_a_control_plane_without_a_journal_says_so(browser: Chromium) -> None:
    with Cluster(nodes=0) as cluster, page_server(cluster.kubeconfig) as link, tab(browser, link) as page:
        page.wait_text("live", "#connection")
        page.evaluate(
            """(() => { const fetched = window.fetch; window.fetch = (url, options) => url.startsWith('/decisions')
            ? Promise.resolve(new Response('{"why": "this control plane keeps no journal"}')) : fetched(url, options); })()"""
        )
        page.click("#time summary")
        page.wait_text("this control plane keeps no journal", "#time")
        page.wait_text("this page has recorded them since", "#time")
