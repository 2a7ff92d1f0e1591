"""Start, stop and restart: initial objects, persistence, and how connections are closed."""

import asyncio
import json
import re
import sys
from pathlib import Path

import aiohttp
import pytest

from control.assembly.background import BackgroundFailed
from control.main import run
from control.storage.cache import WatchCache
from control.storage.compactor import Compactor
from kube import process
from kube.kubeconfig import Access
from kube.transport import HttpsTransport
from tests.support.control import ADMIN, api_server
from tests.support.ports import reserve

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_new_cluster_has_what_upstreams_has(tmp_path: Path) -> None:
    async with api_server(tmp_path, advertise_address="192.0.2.7", port=0) as server:
        names = [i["metadata"]["name"] for i in (await server.request("GET", "/api/v1/namespaces")).json["items"]]
        assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
        service = (await server.request("GET", "/api/v1/namespaces/default/services/kubernetes")).json
        assert service["spec"]["clusterIP"] == "10.96.0.1" and service["spec"]["ports"][0]["port"] == 443
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
        found = (await server.request("GET", slices)).json
        assert found["endpoints"][0]["addresses"] == ["192.0.2.7"]
        critical = (await server.request("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")).json
        assert critical["value"] == 2000001000
        cidr = (await server.request("GET", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes")).json
        assert cidr["spec"]["cidrs"] == ["10.96.0.0/12"]
        path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        assert "BEGIN CERTIFICATE" in (await server.request("GET", path)).json["data"]["client-ca-file"]
        admin = "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin"
        assert (await server.request("GET", admin)).json["rules"][0]["verbs"] == ["*"]


async def test_objects_revisions_and_changes_to_defaults_stay(tmp_path: Path) -> None:
    path = "/api/v1/namespaces/kube-public"
    async with api_server(tmp_path) as server:
        made = (await server.request("POST", CONFIGMAPS, {"metadata": {"name": "kept"}, "data": {"a": "b"}})).json
        headers = {"Content-Type": "application/merge-patch+json"}
        await server.request("PATCH", path, {"metadata": {"labels": {"mine": "yes"}}}, headers=headers)
        await server.request("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")
    async with api_server(tmp_path) as server:
        assert (await server.request("GET", f"{CONFIGMAPS}/kept")).json == made
        assert (await server.request("GET", path)).json["metadata"]["labels"]["mine"] == "yes"
        again = await server.request("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical")
        assert again.status == 200
        newer = (await server.request("POST", CONFIGMAPS, {"metadata": {"name": "newer"}})).json
        assert int(newer["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


async def test_the_database_is_opened_before_the_server_is_imported() -> None:
    program = """if True:
        import asyncio, sys, types, control.main
        async def opened(config, clock):
            print("control.assembly.api_server" in sys.modules)
            await asyncio.sleep(0)
            print("control.assembly.api_server" in sys.modules)
            raise OSError("no disk")
        control.main.open_engine = opened
        asyncio.run(control.main.run(types.SimpleNamespace()))
    """
    ended = await process.run([sys.executable, "-c", program], check=False)
    assert ended.stdout.split() == ["False", "True"]
    assert ended.stderr.strip().endswith("OSError: no disk")


async def test_a_watch_goes_on_over_a_restart(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        made = (await server.request("POST", CONFIGMAPS, {"metadata": {"name": "n"}})).json
        made["data"] = {"a": "b"}
        changed = (await server.request("PUT", f"{CONFIGMAPS}/n", made)).json
    async with api_server(tmp_path) as server:
        url = f"{server.url}{CONFIGMAPS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}"
        async with server.session(*ADMIN).get(url) as answer, asyncio.timeout(30):
            event = json.loads(await answer.content.readline())
            assert event == {"type": "MODIFIED", "object": changed}


async def test_watches_end_cleanly_when_the_server_stops(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=server.tls(*ADMIN)))
        answer = await session.get(f"{server.url}{CONFIGMAPS}?watch=1")
        assert answer.status == 200
        reading = asyncio.ensure_future(answer.content.read())
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            assert await reading == b"", "the stream ends as a whole answer, not as a broken connection"
    finally:
        answer.close()
        await session.close()


async def test_a_role_takes_effect_with_the_answer_that_made_it(tmp_path: Path) -> None:
    jane = ("jane", ())
    async with api_server(tmp_path) as server:
        assert (await server.request("GET", "/api/v1/namespaces/default/pods", user=jane)).status == 403
        binding = {
            "metadata": {"name": "jane"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:kube-scheduler",
            },
            "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
        assert (await server.request("POST", bindings, binding)).status == 201
        assert (await server.request("GET", "/api/v1/namespaces/default/pods", user=jane)).status == 200
        await server.request("DELETE", f"{bindings}/jane")
        assert (await server.request("GET", "/api/v1/namespaces/default/pods", user=jane)).status == 403


async def test_run_notifies_readiness_and_stops_on_request(tmp_path: Path) -> None:
    async with api_server(tmp_path / "first") as server:
        config = server.api.config
    ready, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.ensure_future(run(config, ready=ready.set, stop=stop))
    async with asyncio.timeout(30):
        await ready.wait()
        stop.set()
        await task


async def test_an_informers_client_finds_the_server_again(tmp_path: Path) -> None:
    (port,) = reserve()
    async with api_server(tmp_path, port=port) as server:
        cert, key = server.certificate(*ADMIN)
        ca = (tmp_path / "pki" / "ca.crt").read_bytes()
        transport = HttpsTransport(Access(server.url, ca, cert.read_bytes(), key.read_bytes()))
        assert (await transport.request("GET", "/readyz")).body == b"ok"
    async with api_server(tmp_path, port=port):
        assert (await transport.request("GET", "/readyz")).body == b"ok"
        await transport.close()


async def test_a_server_whose_cache_has_died_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with api_server(tmp_path) as server:
        config = server.api.config
    broken = asyncio.Event()

    async def follow(cache: WatchCache) -> None:
        await broken.wait()
        raise RuntimeError("lost")

    monkeypatch.setattr(WatchCache, "_follow", follow)
    task = asyncio.ensure_future(run(config, ready=broken.set))
    async with asyncio.timeout(30):
        with pytest.raises(ExceptionGroup) as ended:
            await task
    assert ended.group_contains(BackgroundFailed, match="the watch cache has ended: RuntimeError\\('lost'\\)")


async def test_a_server_outlasts_an_error_of_compaction_and_shows_it_in_its_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, again = 0, asyncio.Event()

    async def compact(compactor: Compactor) -> None:
        nonlocal failed
        failed += 1
        if failed == 1:
            raise RuntimeError("a bug")
        again.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Compactor, "run", compact)
    async with api_server(tmp_path) as server:
        async with asyncio.timeout(30):
            await again.wait()
        text = (await server.request("GET", "/metrics")).body.decode()
    assert re.search(r'^wherry_loop_running\{loop="compaction"\} 1$', text, re.MULTILINE)
    assert re.search(r'^wherry_loop_failures_total\{loop="compaction"\} [1-9]', text, re.MULTILINE)
