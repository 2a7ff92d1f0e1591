"""The server of `wherry ui`, and tabs that show its page."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from kube import kubeconfig, pki
from tests.support.chromium import Chromium, Tab
from wherry import cluster as clusters
from wherry.testing import Cluster
from wherry.ui import app, origin, peers, server
from wherry.ui.session import Session

UNNAMED = """
(() => [...document.querySelectorAll('button, input, select, a[href], [role=tab], [role=meter], [role=dialog], [tabindex="0"]')]
  .filter(e => e.checkVisibility())
  .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length
     || document.getElementById(e.getAttribute('aria-labelledby') || '-')?.textContent.trim()))
  .map(e => e.outerHTML.slice(0, 120)))()
"""
"""Elements that are operated or read and have no name."""
PALE = """
(() => {
  const channels = (color) => color.match(/[0-9.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = channels(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !e.checkVisibility()) continue;
    if (e.closest('.skip, option, script, noscript')) continue;
    const [a, b] = [light(channels(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${e.tagName} ${e.className}: ${e.textContent.slice(0, 40)}`);
  }
  return found;
})()
"""
"""Texts whose contrast is below that of WCAG's level AA."""


@contextlib.contextmanager
def page_server(
    config: Path, *, port: int = 0, localhost: bool = False, users: frozenset[int] | None = None
) -> Iterator[str]:
    """Serve the page as `wherry ui` does, in a thread, while the block runs; lend the link."""
    link: queue.SimpleQueue[tuple[str, Callable[[], None]]] = queue.SimpleQueue()

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with clusters.as_user([config]) as (client, namespace):
            own, session = origin.own(port, localhost=localhost), Session()
            shown = app.Cluster(client, getattr(client.transport, "server", ""), namespace)
            link.put((f"{own.url}/#{session.link}", lambda: loop.call_soon_threadsafe(stop.set) and None))
            with peers.connections_of(users) as admits:
                await server.serve(app.build(shown, session, own, stop), own.sockets, stop, admits)

    with ThreadPoolExecutor(1, "page") as threads:
        task = threads.submit(asyncio.run, serve())
        task.add_done_callback(lambda ended: link.put(("", lambda: None)))
        url, stop = link.get(timeout=30)
        assert url, task.exception()
        try:
            yield url
        finally:
            stop()
            task.result(20)


@contextlib.contextmanager
def tab(browser: Chromium, url: str) -> Iterator[Tab]:
    """Open a tab while the block runs; at its end there may be no errors of scripts or violations of the policy."""
    opened = browser.tab()
    try:
        opened.open(url)
        yield opened
        assert opened.violations() == []
    finally:
        opened.close()


def user_kubeconfig(cluster: Cluster, name: str, groups: Sequence[str], path: Path, namespace: str) -> Path:
    """Write a kubeconfig of a user, whose context has a namespace."""
    keys = cluster.running.engine.keys
    pair = pki.issue(keys.ca, name, groups, now=datetime.now(UTC), lifetime=pki.CA_LIFETIME)
    access = kubeconfig.Access(cluster.url, keys.ca.cert_pem, pair.cert_pem, pair.key_pem)
    text = kubeconfig.render(access, cluster="c", user=name, context="x")
    path.write_text(text.replace("user: " + name + "\n", f"user: {name}\n    namespace: {namespace}\n", 1))
    assert kubeconfig.load(path).namespace == namespace
    return path


def pod(name: str, namespace: str = "default", **fields: object) -> dict[str, object]:
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}}} | fields
    metadata = {"name": name, "namespace": namespace, "labels": {"app": name.split("-")[0]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def deployment(name: str, replicas: int, namespace: str = "default") -> dict[str, object]:
    template = pod(name, namespace)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": template["spec"]},
        },
    }


def count(shown: Tab, selector: str) -> int:
    return int(shown.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length"))
