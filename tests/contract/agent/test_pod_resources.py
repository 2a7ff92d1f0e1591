"""The pod resources socket: assigned CPUs, memory, devices and claims."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.managers.options import ManagerOptions
from agent.podresources.wire import podresources_pb2 as pb
from cri.fake import FakeRuntime
from tests.contract.agent.test_devices import GPU, counted
from tests.support.claim_driver import CLASS, NAME, ClaimDriver, allocated_claim
from tests.support.control import ApiUnderTest
from tests.support.device_plugin import device_plugin
from tests.support.fake_node import container, create
from tests.support.node import DEADLINE, FastClock, NodeUnderTest, agent_node

CPUS = os.cpu_count() or 1


async def ask(node: NodeUnderTest, rpc: str, request: Any, answer: Any) -> Any:
    folder = os.open(node.config.root_dir / "pod-resources", os.O_RDONLY | os.O_DIRECTORY)
    try:
        async with grpc.aio.insecure_channel(f"unix:///proc/self/fd/{folder}/kubelet.sock") as channel:
            call = channel.unary_unary(f"/v1.PodResourcesLister/{rpc}", response_deserializer=answer.FromString)
            return await call(request.SerializeToString(), timeout=DEADLINE, wait_for_ready=True)
    finally:
        os.close(folder)


@pytest.mark.skipif(CPUS < 2, reason="with one processor there is nothing to give away")
async def test_resources_of_containers_are_listed(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock
) -> None:
    options = ManagerOptions(cpu_policy="static", memory_policy="Static", reserved_memory={0: {"memory": 1 << 28}})
    reserved = {"cpu": str(CPUS - 1)}
    async with (
        agent_node(tmp_path, runtime, api, clock=clock, managers=options, kube_reserved=reserved) as node,
        device_plugin(node.config.root_dir / "device-plugins", GPU, {"a": "Healthy", "b": "Healthy"}) as plugin,
    ):
        plugin.nodes = {"a": 0}
        await plugin.set()
        await counted(node, "2", "2")
        driver = ClaimDriver(node.config.root_dir)
        async with driver.serving():
            limits = {"cpu": "1", "memory": "64Mi", GPU: "2"}
            uses = container(resources={"limits": limits, "claims": [{"name": "card"}]})
            entry = [{"name": "card", "resourceClaimName": "card"}]
            pod = await create(node, "all", uses, resourceClaims=entry)
            await allocated_claim(node.client, "card", pod)
            await node.ready("all")
        listed = await ask(node, "List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)
        request = pb.GetPodResourcesRequest(pod_name="all", pod_namespace="default")
        got = await ask(node, "Get", request, pb.GetPodResourcesResponse)
        assert list(listed.pod_resources) == [got.pod_resources]
        (found,) = got.pod_resources.containers
        assert found.name == "main" and list(found.cpu_ids) == [CPUS - 1]
        (memory,) = found.memory
        assert (memory.memory_type, memory.size) == ("memory", 64 << 20)
        assert {(d.resource_name, *d.device_ids, *(n.ID for n in d.topology.nodes)) for d in found.devices} == {
            (GPU, "a", 0),
            (GPU, "b"),
        }
        (claim,) = found.dynamic_resources
        assert (claim.claim_name, claim.claim_namespace) == ("card", "default")
        (resource,) = claim.claim_resources
        assert (resource.driver_name, resource.pool_name, resource.device_name) == (NAME, "here", "card-0")
        assert [device.name for device in resource.cdi_devices] == [f"{CLASS}=card"]
        all_there = await ask(
            node, "GetAllocatableResources", pb.AllocatableResourcesRequest(), pb.AllocatableResourcesResponse
        )
        assert list(all_there.cpu_ids) == [CPUS - 1]
        assert sorted(name for d in all_there.devices for name in d.device_ids) == ["a", "b"]
        assert [block.memory_type for block in all_there.memory][:1] == ["memory"]


async def test_a_pod_that_is_not_there_is_not_found(node: NodeUnderTest) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="pod none in namespace default not found"):
        await ask(
            node,
            "Get",
            pb.GetPodResourcesRequest(pod_name="none", pod_namespace="default"),
            pb.GetPodResourcesResponse,
        )
    assert not (await ask(node, "List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)).pod_resources
