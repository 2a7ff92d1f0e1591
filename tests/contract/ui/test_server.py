"""The server of `wherry ui` over a socket: its session, and the reads that it forwards and refuses."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube import kubeconfig
from kube.clock import SYSTEM
from wherry import cluster as clusters
from wherry.testing.async_cluster import AsyncCluster
from wherry.ui import app, origin, reading, server
from wherry.ui.session import Session
from wherry.ui.stories import MOST_MOMENTS
from wherry.ui.watching import STREAMS
from wherry.why import moments

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}
DATA = [
    "/about",
    "/traffic?namespace=default&name=web",
    "/stopped?namespace=default",
    "/watch?w=/api/v1/pods",
    "/why?kind=pod&name=web",
    "/api/v1/pods",
    "/apis/apps/v1/deployments",
]


class Site:
    """A page's server, and a browser's requests to it."""

    def __init__(
        self, cluster: AsyncCluster, client: aiohttp.ClientSession, session: Session, own: origin.Origin
    ) -> None:
        self.cluster, self.client, self.session, self.port = cluster, client, session, own.port
        self.own = own.url
        self.page: dict[str, str] = {}
        self.stop = asyncio.Event()

    async def send(self, method: str, path: str, **options: Any) -> tuple[int, Any, dict[str, str]]:
        headers = {**self.page, **options.pop("headers", {})}
        async with self.client.request(method, self.own + path, headers=headers, **options) as answer:
            body = await answer.read()
            shown = json.loads(body) if body and answer.content_type == "application/json" else body
            return answer.status, shown, dict(answer.headers)

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        status, body, _ = await self.send("GET", path, headers=headers)
        return status, body

    async def exchange(self, link: str, **headers: str) -> tuple[int, Any, dict[str, str]]:
        return await self.send("POST", "/session", json={"link": link}, headers={"Origin": self.own, **headers})

    async def begin(self) -> None:
        status, body, _ = await self.exchange(self.session.link)
        assert status == 200
        self.page = {"X-Wherry-Page": body["token"]}


@contextlib.asynccontextmanager
async def served(cluster: AsyncCluster, config: Path) -> AsyncIterator[Site]:
    async with clusters.as_user([config]) as (client, namespace):
        own, session, stop = origin.own(0, localhost=False), Session(), asyncio.Event()
        shown = app.Cluster(client, cluster.url, namespace)
        task = asyncio.create_task(server.serve(app.build(shown, session, own, stop), own.sockets, stop))
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            site = Site(cluster, browser, session, own)
            site.stop = stop
            yield site
        stop.set()
        await asyncio.wait_for(task, 10)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with AsyncCluster(1) as cluster, served(cluster, cluster.kubeconfig) as found:
        yield found


async def test_a_link_is_exchanged_once_and_nothing_is_read_without_its_session(site: Site) -> None:
    for path in DATA:
        status, body = await site.get(path)
        assert (status, body["reason"]) == (401, "Unauthorized"), path
    assert (await site.exchange("x" * 43))[0] == 403
    status, body, headers = await site.exchange(site.session.link)
    assert status == 200
    cookie = headers["Set-Cookie"]
    assert headers["Clear-Site-Data"] == '"cache", "storage"'
    assert cookie.startswith(f"wherry-ui-{site.port}=") and "HttpOnly" in cookie and "SameSite=strict" in cookie
    status, refused, _ = await site.exchange(site.session.link)
    assert status == 403 and "used already" in refused["message"]
    assert (await site.get("/about"))[0] == 401, "the cookie alone is no session"
    assert (await site.get("/about", **{"X-Wherry-Page": body["token"]}))[0] == 200
    site.client.cookie_jar.clear()
    assert (await site.get("/about", **{"X-Wherry-Page": body["token"]}))[0] == 401, "nor is the token"


async def test_requests_of_other_sites_are_refused(site: Site) -> None:
    await site.begin()
    for host in (
        "evil.example",
        f"evil.example:{site.port}",
        "127.0.0.1",
        f"127.0.0.1:{site.port}",
        f"[::1]:{site.port}",
        f"localhost:{site.port}",
        site.own.removeprefix("http://").rpartition(":")[0],
        "",
    ):
        for path in ("/", "/about", "/static/main.js"):
            assert (await site.get(path, Host=host))[0] in (400, 403), host
    assert (await site.get("/about", Origin="http://evil.example"))[0] == 403
    assert (await site.get("/about", **{"Sec-Fetch-Site": "cross-site"}))[0] == 403
    assert (await site.get("/about", **{"Sec-Fetch-Site": "same-site"}))[0] == 403
    assert (await site.get("/about", **{"Sec-Fetch-Site": "same-origin"}))[0] == 200
    assert (await site.get("/", **{"Sec-Fetch-Site": "cross-site"}))[0] == 200, "a link to the page can be followed"


async def test_a_link_is_only_exchanged_by_the_page(site: Site) -> None:
    for other in ("", "null", "http://evil.example", "http://127.0.0.1"):
        headers = {"Origin": other} if other else {}
        status, _, _ = await site.send("POST", "/session", json={"link": site.session.link}, headers=headers)
        assert status == 403 and not site.session.used, other


async def test_nothing_can_be_written(site: Site) -> None:
    await site.begin()
    await site.cluster.create(POD)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"):
        for path in ("/api/v1/namespaces/default/pods/web", "/", "/about"):
            status, _, _ = await site.send(method, path, headers={"Origin": site.own})
            assert status == 405, (method, path)
    assert (await site.cluster.get("pod/web"))["metadata"]["name"] == "web"


async def test_only_what_the_page_needs_is_read(site: Site) -> None:
    await site.begin()
    await site.cluster.create(POD)
    status, found = await site.get("/api/v1/namespaces/default/pods?limit=1")
    assert status == 200 and found["items"][0]["metadata"]["name"] == "web"
    for path in (
        "/api/v1/secrets",
        "/api/v1/namespaces/default/pods/web/exec?command=id",
        "/api/v1/namespaces/default%2f..%2f/pods",
    ):
        assert (await site.get(path))[0] in (403, 404), path
    assert (await site.get("/api/v1/pods?watch=true"))[0] == 400
    status, found = await site.get("/api/v1/namespaces/default/pods/none")
    assert status == 404 and found["message"] == 'pods "none" not found'


async def test_every_answer_has_the_headers_that_restrict_the_page(site: Site) -> None:
    await site.begin()
    for path in ("/", "/static/main.js", "/static/none", "/none", "/about", "/api/v1/secrets", "/api/v1/nodes"):
        _, _, headers = await site.send("GET", path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';"), path
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
        assert "Access-Control-Allow-Origin" not in headers


async def test_other_bodies_are_refused(site: Site) -> None:
    bodies = [(b"x" * 5000, 413), (b"[" * 1000, 400), (b"{}", 400), (b'{"link":1}', 400), (b"\xff", 400)]
    for body, status in bodies:
        found, _, _ = await site.send("POST", "/session", data=body, headers={"Origin": site.own})
        assert found == status and not site.session.used, body[:10]


async def test_several_collections_are_watched_in_one_answer(site: Site) -> None:
    await site.begin()
    _, listed = await site.get("/api/v1/namespaces/default/pods")
    revision = listed["metadata"]["resourceVersion"]
    wanted = [
        ("w", f"/api/v1/nodes?resourceVersion={revision}"),
        ("w", f"/api/v1/namespaces/default/pods?resourceVersion={revision}"),
    ]
    async with site.client.get(site.own + "/watch", params=wanted, headers=site.page) as answer:
        assert answer.status == 200
        await site.cluster.create(POD)
        async with asyncio.timeout(20):
            async for line in answer.content:
                found = json.loads(line)
                if found["w"] == 1:
                    break
        assert found["event"]["type"] == "ADDED" and found["event"]["object"]["metadata"]["name"] == "web"


async def test_watches_say_at_their_end_that_the_command_has_ended(site: Site) -> None:
    await site.begin()
    async with site.client.get(site.own + "/watch?w=/api/v1/nodes", headers=site.page) as answer:
        assert answer.status == 200
        site.stop.set()
        async with asyncio.timeout(20):
            lines = (await answer.read()).splitlines()
    assert json.loads(lines[-1]) == {"ended": True}


async def test_a_watch_that_the_server_refuses_ends_the_answer_with_the_reason(site: Site) -> None:
    await site.begin()
    path = "/watch?w=/api/v1/pods%3FlabelSelector=%2521%2521&w=/api/v1/nodes"
    async with site.client.get(site.own + path, headers=site.page) as answer:
        lines = [json.loads(line) async for line in answer.content]
    assert lines[-1]["w"] == 0 and lines[-1]["error"]["code"] == 400


async def test_watches_are_limited_and_end_with_their_clients(site: Site) -> None:
    await site.begin()
    assert (await site.get("/watch"))[0] == 400
    assert (await site.get("/watch?" + "&".join(["w=/api/v1/pods"] * 13)))[0] == 400
    url = site.own + "/watch?w=/api/v1/nodes"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=site.client.cookie_jar
    ) as many:
        opened = [await many.get(url, headers=site.page) for _ in range(STREAMS)]
        assert {each.status for each in opened} == {200}
        status, body = await site.get("/watch?w=/api/v1/nodes")
        assert status == 429 and "close other tabs" in body["message"]
    async with asyncio.timeout(20):
        while True:
            async with site.client.get(url, headers=site.page) as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.05)


async def test_stories_are_those_of_the_command(site: Site) -> None:
    await site.begin()
    big = {**POD, "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"memory": "640Gi"}}}]}}
    await site.cluster.create(big)
    await site.cluster.wait("pod/web", "PodScheduled=False")
    status, found = await site.get("/why?kind=Pod&namespace=default&name=web")
    assert status == 200 and "it requests 640Gi of memory" in found["causes"][0]["text"]
    assert found["causes"][0]["fix"].startswith("kubectl ")
    status, found = await site.get("/why?kind=Pod&namespace=default&name=none")
    assert status == 404 and "there is no pod none" in found["message"]
    for wrong in ("", "?kind=Pod", "?kind=Pod&name=../x", "?kind=a/b&name=x"):
        assert (await site.get("/why" + wrong))[0] == 400


async def test_a_log_is_followed(site: Site) -> None:
    await site.begin()
    await site.cluster.create(POD)
    await site.cluster.wait("pod/web", "Ready")
    site.cluster.pods.log("web", "first")
    path = "/api/v1/namespaces/default/pods/web/log"
    status, body = await site.get(path + "?tailLines=10")
    assert status == 200 and body == b"first\n"
    async with site.client.get(f"{site.own}{path}?follow=true", headers=site.page) as answer, asyncio.timeout(20):
        assert await answer.content.readline() == b"first\n"
        site.cluster.pods.log("web", "second")
        assert await answer.content.readline() == b"second\n"
    assert (await site.get(path + "?container=none"))[0] == 400


async def test_credentials_that_the_server_does_not_accept_do_not_end_the_session(tmp_path: Path) -> None:
    async with AsyncCluster(0) as cluster:
        access = dataclasses.replace(kubeconfig.load(cluster.kubeconfig), certificate=None, key=None, token="wrong")
        config = tmp_path / "config"
        config.write_text(kubeconfig.render(access))
        async with served(cluster, config) as site:
            await site.begin()
            for path in ("/api/v1/nodes", "/api/v1/namespaces/default/pods/web/log"):
                status, body = await site.get(path)
                assert status == 502 and "does not accept the kubeconfig's credentials" in body["message"]
            async with site.client.get(site.own + "/watch?w=/api/v1/nodes", headers=site.page) as answer:
                assert [json.loads(line)["error"]["code"] async for line in answer.content] == [502]


async def test_decisions_of_the_journal_are_those_of_a_time_and_a_namespace(site: Site) -> None:
    await site.begin()
    await site.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await site.cluster.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}}
    )
    now = SYSTEM.now().timestamp()
    status, found = await site.get(f"/decisions?namespace=shop&since={now - 60:.3f}&until={now + 60:.3f}")
    assert status == 200 and "web" in {each["name"] for each in found["entries"]}
    assert found["completeSince"] <= now and found["more"] is False
    _, before = await site.get(f"/decisions?since=1&until={now - 60:.3f}")
    assert before["entries"] == []
    for wrong in ("", "?since=1", "?since=-1&until=2", "?since=1&until=x", "?since=1&until=2&namespace=../x"):
        assert (await site.get("/decisions" + wrong))[0] == 400


async def test_an_answer_that_is_too_long_has_a_reason_of_its_own(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.begin()
    await site.cluster.create({**POD, "metadata": {"name": "web", "annotations": {"a": "x" * 5000}}})
    monkeypatch.setattr(reading, "MOST_BYTES", 4000)
    status, found = await site.get("/api/v1/namespaces/default/pods")
    assert (status, found["reason"]) == (502, "AnswerTooLong")


async def test_a_story_has_the_newest_of_many_events(site: Site) -> None:
    await site.begin()
    await site.cluster.create(POD)
    about = {"involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"}, "type": "Warning"}
    most = moments.MOST_EVENTS
    for number in range(most + 20):
        time = f"2026-01-01T{number // 60:02}:{number % 60:02}:00Z"
        event = {"reason": f"R{number}", "message": "x" * 1000, "lastTimestamp": time, **about}
        await site.cluster.create({"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e{number}"}, **event})
    status, found = await site.get("/why?kind=Pod&namespace=default&name=web")
    texts = " ".join(each["text"] for each in found["moments"])
    assert status == 200 and len(found["moments"]) == MOST_MOMENTS
    assert f"R{most + 19}:" in texts and "R0:" not in texts
    assert any("older events about it" in each for each in found["unknown"])
    assert any("older moments" in each for each in found["unknown"])
