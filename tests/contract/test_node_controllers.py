"""Controllers of nodes: pod ranges, certificates, and the eviction after a node stops reporting."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control.controllers import manager
from kube import pki
from kube.api import certificates_v1, coordination_v1, core_v1, meta_v1
from kube.client import Client
from kube.clock import format_micro_time
from tests.support.clock import FakeClock
from tests.support.control import api_server
from tests.support.hollow import HollowNodes, eventually, running
from tests.support.hollow_cluster import Cluster, deployment, hollow_cluster, running_pods


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with hollow_cluster(tmp_path) as made:
        yield made


async def test_nodes_get_pod_ranges_of_their_own(cluster: Cluster) -> None:
    for number in range(3):
        await cluster.nodes.register(f"n{number}")

    async def ranges() -> bool:
        nodes = (await cluster.client.list(core_v1.Node)).items
        found = {node.spec.pod_cidr for node in nodes}
        return found == {"10.244.0.0/24", "10.244.1.0/24", "10.244.2.0/24"}

    await eventually(ranges)


async def test_a_nodes_own_certificate_request_is_approved_and_signed_and_nobody_elses(cluster: Cluster) -> None:
    def request(name: str) -> certificates_v1.CertificateSigningRequest:
        return certificates_v1.CertificateSigningRequest(
            metadata=meta_v1.ObjectMeta(name=name),
            spec=certificates_v1.CertificateSigningRequestSpec(
                request=base64.b64encode(pki.kubelet_client_request(pki.new_key(), "n1")).decode(),
                signer_name="kubernetes.io/kube-apiserver-client-kubelet",
                usages=["digital signature", "client auth"],
            ),
        )

    resource = "certificatesigningrequests.certificates.k8s.io"
    await cluster.kubectl("create", "clusterrole", "ask", "--verb=create", f"--resource={resource}")
    await cluster.kubectl("create", "clusterrolebinding", "ask", "--clusterrole=ask", "--user=jane")
    await cluster.server.client("jane", ()).create(request("of-another"))
    await cluster.server.client("system:node:n1", ("system:nodes",)).create(request("its-own"))

    async def certificate() -> str | None:
        return (await cluster.client.get(certificates_v1.CertificateSigningRequest, "its-own")).status.certificate

    pem = base64.b64decode(await eventually(certificate))
    assert "system:node:n1" in pki.decode_certificate(pem).subject.rfc4514_string()
    undecided = await cluster.client.get(certificates_v1.CertificateSigningRequest, "of-another")
    assert undecided.status.conditions == [] and undecided.status.certificate is None


async def test_a_silent_node_is_tainted_at_fifty_seconds_and_its_pods_leave_after_their_toleration(
    tmp_path: Path,
) -> None:
    async with api_server(tmp_path, enable_controllers=False, enable_scheduler=False) as server:
        client, clock = server.client(), FakeClock()
        nodes = HollowNodes(client, silent=True)
        config = manager.ControllerConfig()
        async with running(server.controllers(config, clock), server.scheduler(), nodes.run()):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            await nodes.register("n1")
            await nodes.register("n2")
            cluster = Cluster(server, client, nodes)
            for name in ("n1", "n2"):  # each takes a pod of its own only when the scheduler knows both
                await known_to_the_scheduler(client, name)
            await client.create(deployment(replicas=2))
            await eventually(lambda: running_pods(cluster, 2))
            assert {p.spec.node_name for p in await cluster.pods()} == {"n1", "n2"}

            async def renew(node: str) -> None:
                spec = {"spec": {"renewTime": format_micro_time(clock.now()), "holderIdentity": node}}
                await client.patch(coordination_v1.Lease, node, "kube-node-lease", spec)

            for name in ("n1", "n2"):
                lease = coordination_v1.Lease(metadata=meta_v1.ObjectMeta(name=name, namespace="kube-node-lease"))
                await client.create(lease)
            for _ in range(6):  # n2 keeps running, n1 is heard of no more
                await renew("n2")
                await asyncio.sleep(0.1)
                await clock.advance(8)
            node = await client.get(core_v1.Node, "n1")
            assert node.spec.taints == [] and node.status.conditions[0].status == "True"
            await renew("n2")
            await asyncio.sleep(0.1)
            await clock.advance(3)

            async def unknown() -> bool:
                node = await client.get(core_v1.Node, "n1")
                ready = next(c for c in node.status.conditions if c.type == "Ready")
                taints = {(t.key, t.effect) for t in node.spec.taints}
                unreachable = "node.kubernetes.io/unreachable"
                return (ready.status, ready.reason) == ("Unknown", "NodeStatusUnknown") and taints == {
                    (unreachable, "NoSchedule"),
                    (unreachable, "NoExecute"),
                }

            await eventually(unknown)
            for _ in range(36):
                await renew("n2")
                await asyncio.sleep(0.02)
                await clock.advance(8)
            assert {p.spec.node_name for p in await cluster.pods() if not p.metadata.deletion_timestamp} == {"n1", "n2"}
            for _ in range(3):
                await renew("n2")
                await asyncio.sleep(0.05)
                await clock.advance(8)
            await eventually(lambda: _all_on(cluster, "n2"))


async def known_to_the_scheduler(client: Client, node: str) -> None:
    """Wait until the scheduler puts a pod on a node that the pod asks for."""
    spec = core_v1.PodSpec(
        containers=[core_v1.Container(name="c", image="x")], node_selector={"kubernetes.io/hostname": node}
    )
    metadata = meta_v1.ObjectMeta(name=f"first-of-{node}", namespace="kube-system")
    await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "kube-system"))
    await client.create(core_v1.Pod(metadata=metadata, spec=spec))

    async def placed() -> bool:
        return bool((await client.get(core_v1.Pod, f"first-of-{node}", "kube-system")).spec.node_name)

    await eventually(placed)
    await client.delete(core_v1.Pod, f"first-of-{node}", "kube-system", grace_period_seconds=0)


async def _all_on(cluster: Cluster, node: str) -> bool:
    running_ = [p for p in await cluster.pods() if p.status.phase == "Running" and not p.metadata.deletion_timestamp]
    return len(running_) == 2 and {p.spec.node_name for p in running_} == {node}
