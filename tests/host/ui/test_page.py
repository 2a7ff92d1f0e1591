"""The page of `wherry ui` in a browser: its views, keys, and what texts of the cluster can do in it (nothing)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.chromium import Chromium, Tab
from tests.support.ui_page import PALE, UNNAMED, count, deployment, page_server, pod, tab
from wherry.testing import Cluster

MARKUP = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
REVERSED = "safe\u202egnp.exe"
SHOP = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as found:
        found.apply([SHOP, deployment("web", 3), deployment("till", 2, "shop")])
        found.apply(pod("big", resources={"requests": {"memory": "640Gi"}}))
        for reference, namespace in (("deployment/web", "default"), ("deployment/till", "shop")):
            found.wait(reference, "Available", namespace=namespace)
        found.wait("pod/big", "PodScheduled=False")
        yield found


@pytest.fixture(scope="module")
def opened(cluster: Cluster, browser: Chromium) -> Iterator[Tab]:
    """A tab with a session, which the tests of this module share."""
    with page_server(cluster.kubeconfig) as link, tab(browser, link) as shown:
        shown.wait_text("live", "#connection")
        yield shown


@pytest.fixture
def page(opened: Tab) -> Tab:
    """The page as it is without filters."""
    opened.open(opened.evaluate("location.origin") + "/")
    opened.wait("document.querySelector('#connection')?.className === 'live'")
    opened.wait("document.querySelectorAll('.tile').length > 3")
    return opened


def test_the_link_is_not_left_in_the_url_and_works_once(cluster: Cluster, browser: Chromium) -> None:
    with page_server(cluster.kubeconfig) as link:
        with tab(browser, link) as first:
            first.wait_text("live", "#connection")
            assert first.evaluate("location.href") == link.split("#")[0]
            assert first.evaluate("document.cookie") == ""
            first.evaluate("location.reload()")
            first.wait_text("live", "#connection")
        with tab(browser, link) as second:
            second.wait_text("this link was used already: run `wherry ui` again", "#connection")
            assert "big" not in second.text()


def test_what_is_wrong_comes_first_and_has_its_story_and_fix(page: Tab) -> None:
    page.wait_text("What is wrong (1)", "#problems-count")
    page.click(".toggle", "Pod default/big")
    page.wait_text("it requests 640Gi of memory, and no node has more than 32Gi", ".problems .causes")
    fix = page.evaluate("document.querySelector('.fix code').innerText")
    assert fix.startswith("kubectl ") and "pod/big -n default" in fix
    page.click(".copy", "Copy the fix")
    page.wait_text("Copied", ".problems .copy")
    assert page.evaluate("navigator.clipboard.readText()") == fix
    page.click(".toggle", "Pod default/big")
    page.wait("!document.querySelector('.problems .story')")


def test_nodes_are_tiles_with_their_pods_and_requests(page: Tab) -> None:
    assert count(page, ".tile") == 4  # and one of pods that are on no node
    assert count(page, ".tile .cell.ok") == 5 and count(page, ".tile .cell.bad") == 1
    said = page.evaluate(
        "[...document.querySelectorAll('[role=meter]')].map(e => e.ariaLabel + ': ' + e.getAttribute('aria-valuetext'))"
    )
    assert len(said) == 9 and all(" of 8" in each for each in said if each.startswith("CPU requested"))
    assert sum(int(each.split()[2]) for each in said if each.startswith("Pods")) == 5


def test_changes_are_shown_as_they_happen(cluster: Cluster, page: Tab) -> None:
    cluster.apply(pod("late"))
    page.wait("document.querySelector('[aria-label=\"default/late: Running\"]')")
    cluster.pods.set_ready("late", ready=False)
    page.wait("document.querySelector('.cell.wait[aria-label=\"default/late: NotReady\"]')")
    cluster.delete("pod/late")
    page.wait("!document.querySelector('[aria-label^=\"default/late\"]')")


def test_a_pods_drawer_has_its_story_events_log_containers_and_yaml(cluster: Cluster, page: Tab) -> None:
    name = cluster.list("pods", selector="app=web")[0]["metadata"]["name"]
    cluster.pods.log(name, "line one")
    page.click(f'.cell[aria-label^="default/{name}"]')
    page.wait_text("nothing is wrong with it", "#panel")
    page.click("[role=tab]", "Events")
    page.wait_text("Scheduled: Successfully assigned", "#panel")
    page.click("[role=tab]", "Logs")
    page.wait_text("line one", "#panel pre")
    cluster.pods.log(name, "line two")
    page.wait_text("line two", "#panel pre")
    page.click("[role=tab]", "Containers")
    page.wait_text("image nginx", "#panel")
    page.click("[role=tab]", "YAML")
    page.wait("document.querySelector('#panel pre')")
    shown = yaml.safe_load(page.evaluate("document.querySelector('#panel pre').textContent"))
    real = cluster.get(f"pod/{name}")
    real["metadata"].pop("managedFields")
    assert shown == yaml.safe_load(json.dumps(real, default=str))
    page.key("Escape")
    page.wait("document.querySelector('#drawer').hidden")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(f"default/{name}")


def test_workloads_and_nodes_have_drawers_too_and_the_url_leads_to_them(page: Tab) -> None:
    page.click("#workloads button", "Deployment till")
    page.wait_text("Deployment till", "#drawer-title")
    assert "show=Deployment%2Fshop%2Ftill" in page.evaluate("location.search")
    page.evaluate("location.reload()")
    page.wait_text("Deployment till", "#drawer-title")
    page.evaluate("history.back()")
    page.wait("document.querySelector('#drawer').hidden")
    page.click(".tile button", "node-1")
    page.wait_text("Ready", "#drawer .state")


def test_filters_are_in_the_url(page: Tab) -> None:
    origin = page.evaluate("location.origin")
    page.open(f"{origin}/?namespace=shop")
    page.wait("document.querySelectorAll('.tile .cell').length === 2")
    assert page.evaluate("document.querySelector('#namespace').value") == "shop"
    page.open(f"{origin}/?labels=app+in+(web,big)")
    page.wait("document.querySelectorAll('.tile .cell').length === 4")
    page.open(f"{origin}/?labels=%21%21")
    page.wait_text("unable to parse", "#notes")
    page.open(f"{origin}/")
    page.wait("document.querySelectorAll('.tile .cell').length === 6")
    page.key("/", "/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.type("till")
    page.wait("document.querySelectorAll('.tile .cell').length === 2 && location.search === '?text=till'")
    page.key("Escape")
    page.wait("document.querySelectorAll('.tile .cell').length === 6 && location.search === ''")


def test_cells_are_reached_with_the_keyboard(page: Tab) -> None:
    page.evaluate("document.querySelector('.cell[tabindex=\"0\"]').focus()")
    first = page.evaluate("document.activeElement.ariaLabel")
    page.key("ArrowRight")
    second = page.evaluate("document.activeElement.ariaLabel")
    assert first != second
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is visible"
    page.key("ArrowLeft")
    assert page.evaluate("document.activeElement.ariaLabel") == first
    page.key("Enter", "\r")
    page.wait_text("Story", "#drawer")
    assert page.evaluate("document.activeElement.id") == "drawer-title"
    page.evaluate("document.querySelector('[role=tab]').focus()")
    page.key("ArrowRight")
    page.wait(
        "document.activeElement.id === 'tab-Events' && document.activeElement.getAttribute('aria-selected') === 'true'"
    )


def test_a_collection_is_listed_again_when_its_revision_is_too_old(page: Tab) -> None:
    expired = {"w": 0, "event": {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}}
    answer = f"new Response({json.dumps(json.dumps(expired))} + '\\n')"
    page.evaluate(
        f"""(async () => {{
          const {{Collection, Live}} = await import('/static/live.js');
          const fetched = window.fetch;
          window.paths = [];
          window.fetch = (url, options) => {{
            paths.push(url.split('?')[0]);
            if (url.startsWith('/watch') && paths.length === 1) return Promise.resolve({answer});
            return fetched(url, options);
          }};
          window.pods = new Collection('pods', '/api/v1/namespaces/shop/pods', (pod) => pod.metadata.name);
          Object.assign(pods, {{revision: '1', listed: true, items: new Map([['shop/gone', 'gone']])}});
          window.live = new Live([pods], {{changed: () => {{}}, state: () => {{}}}});
          live.run();
        }})()"""
    )
    page.wait("!pods.items.has('shop/gone') && pods.items.size === 2 && paths.length === 3")
    assert page.evaluate("paths") == ["/watch", "/api/v1/namespaces/shop/pods", "/watch"]
    page.evaluate("live.stop()")


def test_a_long_log_keeps_its_last_lines(cluster: Cluster, page: Tab) -> None:
    name = cluster.list("pods", selector="app=web")[0]["metadata"]["name"]
    page.open(page.evaluate("location.origin") + f"/?show=Pod/default/{name}")
    page.click("[role=tab]", "Logs")
    page.wait_text("following", "#panel")
    cluster.pods.log(name, "it begins")
    page.wait_text("it begins", "#panel pre")
    for part in range(8):
        cluster.pods.log(name, "\n".join(f"line {part * 1000 + number}" for number in range(1000)))
    page.wait_text("line 7999", "#panel pre")
    shown = page.evaluate("document.querySelector('#panel pre').textContent.trim().split('\\n')")
    assert 2000 < len(shown) <= 6000 and shown[-1] == "line 7999" and "line 0" not in shown


def test_texts_of_the_cluster_are_never_markup(cluster: Cluster, page: Tab) -> None:
    cluster.apply({**pod("evil"), "metadata": {"name": "evil", "annotations": {"note": MARKUP + REVERSED}}})
    cluster.wait("pod/evil", "Ready")
    cluster.pods.kill("evil", code=3, reason=MARKUP)
    cluster.wait("pod/evil", lambda found: found["status"]["containerStatuses"][0]["restartCount"] == 1)
    cluster.wait("pod/evil", "Ready")
    cluster.pods.log("evil", f"\x1b[31m{MARKUP}\x1b]0;title\x07")
    involved = {"kind": "Pod", "name": "evil", "namespace": "default"}
    about = {"involvedObject": involved, "reason": "Evil", "message": MARKUP + REVERSED, "type": "Warning"}
    cluster.create({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "evil.1"}, **about})
    page.open(page.evaluate("location.origin") + "/?show=Pod/default/evil")
    for name in ("Story", "Events", "Logs", "Containers", "YAML"):
        page.click("[role=tab]", name)
        page.wait("!document.querySelector('#panel [aria-busy]')")
        if name in ("Events", "Logs", "YAML"):
            page.wait_text("onerror", "#panel")
        assert "\u202e" not in page.text() and "\x1b" not in page.text()
        assert name != "Events" or "\\u{202e}" in page.text()
    assert "\\u202e" in page.text(), "YAML has the form that parsers read"
    hostile = json.dumps(MARKUP + REVERSED)
    node = f"{{name: {hostile}, kind: 'Node', state: {{level: 'bad', word: {hostile}}}, cpu: 1, memory: 1, pods: 1}}"
    for code in (
        f"import('/static/dom.js').then(m => document.body.append(m.el('p', {{title: {hostile}}}, {hostile})))",
        f"import('/static/nodes_view.js').then(m => m.showNodes(document.querySelector('#legend'), [{node}], [], 0))",
    ):
        page.evaluate(code)
    assert page.evaluate("window.hacked === undefined && !document.querySelector('img, body script')")
    assert page.violations() == []
    cluster.delete("pod/evil")


def test_markup_from_strings_is_impossible(page: Tab) -> None:
    """The policy forbids it, should a later change of the page try; the violation that this makes is none of the page's."""
    attempt = "document.body.innerHTML = '<b>'; return false;"
    refused = f"(() => {{ try {{ {attempt} }} catch (e) {{ return e instanceof TypeError; }} }})()"
    assert page.evaluate(refused)
    assert any("trusted" in each.lower() for each in page.violations())
    page.evaluate("window.violations = []")
    page.errors.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_contrast(page: Tab, scheme: str) -> None:
    page.scheme(scheme)
    page.click(".toggle", "Pod default/big")
    page.wait("document.querySelector('.problems .causes')")
    page.click(".problems .link", "Details")
    page.wait("document.querySelector('#panel .causes')")
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(PALE) == []
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    roles = {each["role"]["value"] for each in nodes if not each["ignored"]}
    assert {"main", "search", "dialog", "tablist", "tab", "tabpanel", "heading", "meter", "table", "status"} <= roles
    named = {"button", "textbox", "searchbox", "combobox", "tab", "meter", "dialog", "tabpanel", "region"}
    without = [
        each
        for each in nodes
        if not each["ignored"] and each["role"]["value"] in named and not each.get("name", {}).get("value")
    ]
    assert without == []


def test_cells_and_bars_are_visible_with_forced_colours(page: Tab) -> None:
    page.send("Emulation.setEmulatedMedia", features=[{"name": "forced-colors", "value": "active"}])
    try:
        style = "getComputedStyle(document.querySelector('{}'))"
        for each in (".tile .cell.ok", ".tile .cell.bad", ".tile .meter", ".legend .cell.ok"):
            assert page.evaluate(f"{style.format(each)}.borderTopStyle") == "solid", each
        assert page.evaluate("getComputedStyle(document.querySelector('.cell.ok'), '::after').content") == '"·"'
        filled = page.evaluate(f"{style.format('.tile .fill')}.backgroundColor")
        assert filled != page.evaluate(f"{style.format('.tile .meter')}.backgroundColor")
    finally:
        page.send("Emulation.setEmulatedMedia", features=[])


def test_the_page_fits_a_phone(page: Tab) -> None:
    page.size(360, 740)
    try:
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.click(".toggle", "Pod default/big")
        page.wait("document.querySelector('.problems .causes')")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.click(".problems .link", "Details")
        page.wait("document.querySelector('#panel .causes')")
        assert page.evaluate("document.querySelector('#drawer').getBoundingClientRect().left") >= 0
        page.click(".close")
        page.wait("document.querySelector('#drawer').hidden")
    finally:
        page.size(1200, 800)


def test_the_screenshot_of_the_documentation_can_be_made(page: Tab, tmp_path: Path) -> None:
    """WHERRY_SCREENSHOTS=docs writes it there."""
    folder = Path(os.environ.get("WHERRY_SCREENSHOTS") or tmp_path)
    page.click(".toggle", "Pod default/big")
    page.wait("document.querySelector('.problems .causes')")
    page.scheme("light")
    page.size(1000, 660)
    page.screenshot(folder / "ui.png")
    page.size(1200, 800)
    assert 5_000 < (folder / "ui.png").stat().st_size < 150_000
