"""Readers through everything: a copy kept by list and watch ends up equal to what is stored, whatever happened meanwhile."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.errors import StatusError
from kube.informer import Informer
from kube.kubeconfig import Access
from kube.transport import HttpsTransport
from tests.support.control import ADMIN, ApiUnderTest, api_server
from tests.support.ports import reserve

NAMES = [f"n{number}" for number in range(12)]


def client_of(server: ApiUnderTest) -> Client:
    cert, key = server.certificate(*ADMIN)
    ca = (server.directory / "pki" / "ca.crt").read_bytes()
    return Client(HttpsTransport(Access(server.url, ca, cert.read_bytes(), key.read_bytes())))


async def write(client: Client, rng: random.Random, count: int) -> None:
    """Create, change and delete at random; what a race or a restart spoils is left."""
    for number in range(count):
        name = rng.choice(NAMES)
        try:
            match rng.randrange(3):
                case 0:
                    meta = meta_v1.ObjectMeta(name=name, namespace="default", labels={"n": str(number)})
                    await client.create(core_v1.ConfigMap(metadata=meta))
                case 1:
                    await client.patch(core_v1.ConfigMap, name, "default", {"data": {"n": str(number)}})
                case 2:
                    await client.delete(core_v1.ConfigMap, name, "default")
        except StatusError:
            await asyncio.sleep(0)


async def stored(server: ApiUnderTest) -> dict[str, str]:
    listing = (await server.request("GET", "/api/v1/namespaces/default/configmaps")).json
    return {f"default/{i['metadata']['name']}": i["metadata"]["resourceVersion"] for i in listing["items"]}


async def settled(server: ApiUnderTest, informer: Informer[core_v1.ConfigMap]) -> None:
    """Wait until the copy is what the server has; the deadline is the assertion."""

    def copy() -> dict[str, Any]:
        return {key: informer.get(key).metadata.resource_version for key in informer.keys()}  # type: ignore[union-attr]

    wanted = await stored(server)
    try:
        async with asyncio.timeout(30):
            while copy() != wanted:
                await asyncio.sleep(0.02)
    except TimeoutError:
        assert copy() == wanted


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_copy_follows_through_writes_compaction_and_restarts(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    (port,) = reserve()
    async with api_server(tmp_path, port=port) as server:
        client, writer = client_of(server), client_of(server)
        informer = Informer(client, core_v1.ConfigMap, "default")
        following = asyncio.create_task(informer.run(), name="informer")
        await informer.wait_synced()
        await asyncio.gather(*(write(writer, random.Random(rng.random()), 40) for _ in range(4)))
        await settled(server, informer)
        await server.api.store.compact(await server.api.store.current_revision())
        await asyncio.gather(*(write(writer, random.Random(rng.random()), 40) for _ in range(4)))
        await settled(server, informer)
        for cached in server.api.registry.caches():
            cached.end_watches()
        await write(writer, rng, 20)
        await settled(server, informer)
    async with api_server(tmp_path, port=port) as server:
        await write(server.client(), rng, 40)
        await server.api.store.compact(await server.api.store.current_revision())
        await settled(server, informer)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()
        await writer.close()


async def test_a_reader_sees_what_it_wrote_at_once(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:

        async def one(number: int) -> None:
            path = "/api/v1/namespaces/default/configmaps"
            made = (await server.request("POST", path, {"metadata": {"name": f"own-{number}"}})).json
            assert (await server.request("GET", f"{path}/own-{number}")).json == made
            listing = (await server.request("GET", f"{path}?resourceVersion=0")).json
            assert any(item["metadata"]["name"] == f"own-{number}" for item in listing["items"])
            assert (await server.request("DELETE", f"{path}/own-{number}")).status == 200
            assert (await server.request("GET", f"{path}/own-{number}")).status == 404

        await asyncio.gather(*(one(number) for number in range(40)))


async def test_only_one_of_many_creates_and_updates_wins(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        path = "/api/v1/namespaces/default/configmaps"
        bodies = [{"metadata": {"name": "one"}, "data": {"by": str(number)}} for number in range(20)]
        answers = await asyncio.gather(*(server.request("POST", path, body) for body in bodies))
        assert sorted(answer.status for answer in answers) == [201] + [409] * 19
        made = next(answer.json for answer in answers if answer.status == 201)
        changes = [{**made, "data": {"by": str(number)}} for number in range(20)]
        answers = await asyncio.gather(*(server.request("PUT", f"{path}/one", body) for body in changes))
        winners = [answer.json for answer in answers if answer.status == 200]
        changed = [obj for obj in winners if obj["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]]
        assert len(changed) == 1 and {answer.status for answer in answers} <= {200, 409}
        assert (await server.request("GET", f"{path}/one")).json == changed[0]


def binding(user: str) -> dict[str, Any]:
    """Return a ClusterRoleBinding that makes somebody an administrator, though not the cluster's owner."""
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
    }


async def test_node_leases_are_renewed_also_when_the_server_is_full(tmp_path: Path) -> None:
    node = ("system:node:n", ("system:nodes",))
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    async with api_server(tmp_path) as server:
        lease = {"metadata": {"name": "n"}, "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40}}
        made = await server.request("POST", path, lease, user=node)
        assert made.status == 201
        await server.full("global-default", "system")
        assert (await server.request("PUT", f"{path}/n", made.json, user=node)).status == 200
        blind = await server.request("PUT", f"{path}/n", lease, user=node)
        assert "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update" in blind.json["message"]
        events = "/api/v1/namespaces/default/events"
        jane = ("jane", ())
        event = {"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "Node", "name": "n"}}
        await server.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding("jane"))
        assert (await server.request("POST", events, event, user=jane)).status == 429
        assert (await server.request("POST", events, event, user=node)).status == 429, "events are no leases"
        assert (await server.request("PUT", f"{path}/n", made.json, user=node)).status in (200, 409)
