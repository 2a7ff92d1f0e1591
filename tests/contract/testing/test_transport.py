"""Clients inside the process: httpx, httpx2 and lightkube with a transport of the cluster, without a socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NoReturn

import httpx
import httpx2
import lightkube
import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod

from tests.contract.testing.test_cluster import deployment
from wherry.testing import AsyncCluster, Cluster, ClusterError, Run

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as found:
        yield found


@pytest.fixture
def no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections fail."""

    def connect(*arguments: Any) -> NoReturn:
        raise AssertionError("a connection")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, connect)


def config_of(cluster: Cluster | AsyncCluster) -> lightkube.KubeConfig:
    return lightkube.KubeConfig.from_file(cluster.kubeconfig)


def new_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "ü/%2f"}}


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_blocking_client_reads_writes_and_watches(cluster: Cluster, library: Any, no_connections: None) -> None:
    name = library.__name__
    with library.Client(base_url="http://cluster", transport=cluster.transport(), timeout=5) as client:
        created = client.post(MAPS, json=new_map(name))
        assert (created.status_code, created.json()["data"]) == (201, {"a": "ü/%2f"})
        assert client.post(MAPS, json=new_map(name)).json()["reason"] == "AlreadyExists"
        found = client.get(MAPS, params={"fieldSelector": f"metadata.name={name}"}).json()["items"]
        assert [each["metadata"]["name"] for each in found] == [name]
        version = created.json()["metadata"]["resourceVersion"]
        with client.stream("GET", MAPS, params={"watch": "1", "resourceVersion": version}) as watch:
            lines = watch.iter_lines()
            client.delete(f"{MAPS}/{name}")
            assert '"DELETED"' in next(lines)
        with (
            client.stream("GET", MAPS, params={"watch": "1"}, timeout=0.2) as watch,
            pytest.raises(library.ReadTimeout),
        ):
            for _ in watch.iter_lines():
                pass
        with client.stream("GET", MAPS, params={"watch": "1", "timeoutSeconds": "1"}) as watch:
            assert all('"ADDED"' in line for line in watch.iter_lines())  # the server ends it
        refused = client.post("/api/v1/namespaces/default/pods/a/exec?command=ls", headers={"upgrade": "SPDY/3.1"})
        assert refused.status_code in (400, 404)


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_a_client_for_asyncio_works_on_any_event_loop(
    cluster: Cluster, library: Any, no_connections: None
) -> None:
    name = f"async-{library.__name__}"
    async with library.AsyncClient(base_url="http://cluster", transport=cluster.transport(), timeout=5) as client:
        created = (await client.post(MAPS, json=new_map(name))).json()
        version = created["metadata"]["resourceVersion"]
        async with client.stream("GET", MAPS, params={"watch": "1", "resourceVersion": version}) as watch:
            await client.delete(f"{MAPS}/{name}")
            async for line in watch.aiter_lines():
                assert '"DELETED"' in line
                break
        async with client.stream("GET", MAPS, params={"watch": "1"}, timeout=0.2) as watch:
            with pytest.raises(library.ReadTimeout):
                async for _ in watch.aiter_lines():
                    pass


def test_requests_act_as_the_user_of_the_transport_or_of_their_token(cluster: Cluster) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

    def user(transport: Any, **headers: str) -> dict[str, Any]:
        with httpx.Client(base_url="http://cluster", transport=transport) as client:
            found: dict[str, Any] = client.post(path, json=review, headers=headers).json()["status"]["userInfo"]
            return found

    assert user(cluster.transport())["groups"] == ["system:masters", "system:authenticated"]
    eve = user(cluster.transport("eve", ["dev"]))
    assert (eve["username"], eve["groups"]) == ("eve", ["dev", "system:authenticated"])
    with httpx.Client(base_url="http://cluster", transport=cluster.transport("eve")) as client:
        assert client.get(MAPS).status_code == 403
        assert client.get(MAPS, headers={"authorization": "Bearer wrong"}).status_code == 401
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    with httpx.Client(base_url="http://cluster", transport=cluster.transport()) as client:
        token = client.post("/api/v1/namespaces/default/serviceaccounts/default/token", json=request).json()
    account = user(cluster.transport(), authorization=f"Bearer {token['status']['token']}")
    assert account["username"] == "system:serviceaccount:default:default"


def test_lightkube_takes_the_transport(cluster: Cluster, no_connections: None) -> None:
    client = lightkube.Client(config_of(cluster), transport=cluster.transport())
    client.create(ConfigMap(metadata=ObjectMeta(name="light", namespace="default"), data={"a": "b"}))
    assert client.get(ConfigMap, "light").data == {"a": "b"}
    seen: list[str] = []

    def watch() -> None:
        for kind, found in client.watch(ConfigMap, fields={"metadata.name": "light"}):
            seen.append(f"{kind} {(found.data or {}).get('a')}")
            if kind == "DELETED":
                return

    thread = threading.Thread(target=watch)
    thread.start()
    client.patch(ConfigMap, "light", {"data": {"a": "c"}})
    client.delete(ConfigMap, "light")
    thread.join(10)
    assert not thread.is_alive() and seen[-1] == "DELETED c"
    cluster.apply(deployment("web", 1))
    client.wait(Deployment, "web", for_conditions=["Available"])
    cluster.pods.script("logs", Run(logs="one\ntwo\n"))
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "logs"}} | pod_spec())
    cluster.wait("pod/logs", "Ready")
    assert list(client.log("logs")) == ["one\n", "two\n"]
    with pytest.raises(lightkube.ApiError, match='pods "none" not found'):
        client.get(Pod, "none")


def pod_spec() -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": "x"}]}}


async def test_lightkubes_client_for_asyncio_on_the_clusters_own_event_loop(no_connections: None) -> None:
    async with AsyncCluster() as cluster:
        client = lightkube.AsyncClient(config_of(cluster), transport=cluster.transport())
        await cluster.apply(deployment("web", 2))
        await client.wait(Deployment, "web", for_conditions=["Available"])
        assert len([pod async for pod in client.list(Pod, labels={"app": "web"})]) == 2
        await client.close()
        with (
            pytest.raises(ClusterError, match="a blocking client cannot be used on the cluster's event loop"),
            httpx.Client(base_url="http://cluster", transport=cluster.transport()) as blocking,
        ):
            blocking.get(MAPS)  # noqa: ASYNC212


def test_virtual_time_waits_for_the_reactions_of_such_clients() -> None:
    with Cluster(time="virtual") as cluster:
        client = lightkube.Client(config_of(cluster), transport=cluster.transport())
        begun = threading.Event()

        def react() -> None:
            for kind, _ in client.watch(ConfigMap, fields={"metadata.name": "m"}):
                begun.set()
                if kind == "ADDED":
                    client.patch(ConfigMap, "m", {"data": {"reaction": str(cluster.now)}})
                elif kind == "DELETED":
                    return

        thread = threading.Thread(target=react)
        thread.start()
        cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}})
        before = cluster.now
        cluster.advance(days=1)
        assert begun.wait(10)
        assert cluster.get("configmap/m")["data"]["reaction"] == str(before)
        assert cluster.now - before == timedelta(days=1)
        cluster.delete("configmap/m")
        thread.join(10)
        assert not thread.is_alive()


async def test_a_stream_ends_with_the_cluster() -> None:
    ended: list[BaseException] = []

    def read(client: httpx.Client, begun: threading.Event) -> None:
        try:
            with client.stream("GET", MAPS, params={"watch": "1"}) as watch:
                for _ in watch.iter_lines():
                    begun.set()
        except BaseException as error:
            ended.append(error)

    def use() -> threading.Thread:
        with Cluster() as cluster:
            client = httpx.Client(base_url="http://cluster", transport=cluster.transport(), timeout=60)
            begun = threading.Event()
            thread = threading.Thread(target=read, args=(client, begun))
            thread.start()
            assert begun.wait(10)
            return thread

    thread = await asyncio.to_thread(use)
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive() and all(isinstance(error, httpx.RemoteProtocolError) for error in ended)
