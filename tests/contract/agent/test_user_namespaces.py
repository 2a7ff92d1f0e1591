"""Pods with user namespaces: their IDs, the runtime's configuration, and runtimes without support."""

from __future__ import annotations

import json

from cri.fake import FakeRuntime
from cri.messages import NamespaceMode, RuntimeHandler, RuntimeHandlerFeatures
from kube.api import core_v1
from tests.support.fake_node import calls, container, create, waiting
from tests.support.node import NodeUnderTest, eventually

ROOM = 65536


async def able(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    """Have the runtime make user namespaces, and the node know it."""
    features = RuntimeHandlerFeatures(user_namespaces=True)
    runtime.containers.handlers[:] = [RuntimeHandler(name="", features=features), RuntimeHandler(name="old")]

    async def known() -> bool:
        found = (await node.client.get(core_v1.Node, node.config.node_name)).status.runtime_handlers
        return [h.name for h in found if h.features and h.features.user_namespaces] == [None]

    await eventually(known, "the node does not show the runtime's handlers")


async def test_each_pod_has_ids_of_its_own_also_after_a_restart(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    await able(node, runtime)
    volumes = [{"name": "data", "emptyDir": {}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    main = container(volumeMounts=mounts, terminationMessagePath="/dev/log")
    first = await create(node, "first", main, hostUsers=False, volumes=volumes, securityContext={"fsGroup": 7})
    await create(node, "second", hostUsers=False)
    await create(node, "ordinary")
    for name in ("first", "second", "ordinary"):
        await node.ready(name)
    given = {}
    for request in calls(runtime, "RunPodSandbox"):
        users = request.config.linux.security_context.namespace_options.userns_options
        given[request.config.metadata.name] = users
    assert given["ordinary"].mode == NamespaceMode.NODE and not given["ordinary"].uids
    own = {}
    for name in ("first", "second"):
        (mapping,) = given[name].uids
        assert given[name].mode == NamespaceMode.POD and list(given[name].gids) == [mapping]
        assert (mapping.container_id, mapping.length) == (0, ROOM)
        assert mapping.host_id >= ROOM and mapping.host_id % ROOM == 0
        own[name] = mapping
    assert own["first"].host_id != own["second"].host_id
    made = next(r.config for r in calls(runtime, "CreateContainer") if r.sandbox_config.metadata.name == "first")
    assert made.linux.security_context.namespace_options.userns_options == given["first"]
    assert {m.container_path for m in made.mounts} >= {"/data", "/dev/log", "/etc/hosts"}
    assert all(list(m.uidMappings) == list(m.gidMappings) == [own["first"]] for m in made.mounts)
    note = json.loads((node.config.pods_dir / (first.metadata.uid or "") / "userns").read_text())
    assert note["uidMappings"] == [{"hostId": own["first"].host_id, "containerId": 0, "length": ROOM}]
    assert note["gidMappings"] == note["uidMappings"]
    await node.stop()
    await node.start()
    await create(node, "third", hostUsers=False)
    await node.ready("third")
    third = calls(runtime, "RunPodSandbox")[-1].config.linux.security_context.namespace_options.userns_options
    assert third.uids[0].host_id not in (own["first"].host_id, own["second"].host_id)
    await node.delete("first")
    await node.gone("first")

    async def discarded() -> bool:
        return not (node.config.pods_dir / (first.metadata.uid or "")).exists()

    await eventually(discarded, "what the first pod had is still there")  # its folder goes after it
    await create(node, "heir", hostUsers=False)
    await node.ready("heir")
    heir = calls(runtime, "RunPodSandbox")[-1].config.linux.security_context.namespace_options.userns_options
    assert heir.uids[0].host_id == own["first"].host_id


async def test_no_user_namespace_is_requested_of_a_runtime_without_support(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    await create(node, "unknown", hostUsers=False)
    assert await node.event("unknown", "FailedCreatePodSandBox") == (
        "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces: "
        'the handler "" is not known'
    )
    runtime.containers.handlers[:] = [RuntimeHandler(name="")]
    wanted = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces"

    async def refused() -> bool:
        return ("FailedCreatePodSandBox", wanted) in await node.events("unknown")

    await eventually(refused, "the event does not say why")
    assert calls(runtime, "RunPodSandbox") == []


async def test_no_container_starts_with_the_nodes_users_while_its_pods_ids_cannot_be_read(
    node: NodeUnderTest, runtime: FakeRuntime
) -> None:
    await able(node, runtime)
    pod = await create(node, "mapped", container("sleep 5; exit 1"), hostUsers=False)
    await node.ready("mapped")
    file = node.config.pods_dir / (pod.metadata.uid or "") / "userns"
    whole = file.read_text()
    await node.stop()
    file.write_text("")
    await node.start()
    await node.wait("mapped", lambda found: waiting(found) == "CreateContainerConfigError")
    file.write_text(whole)
    await node.wait("mapped", lambda found: found.status.container_statuses[0].restart_count > 0)
    made = [r.config.linux.security_context for r in calls(runtime, "CreateContainer")]
    assert len(made) > 1 and all(c.namespace_options.userns_options.mode == NamespaceMode.POD for c in made)
