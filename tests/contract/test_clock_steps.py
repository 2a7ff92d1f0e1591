"""The control plane while its wall clock steps, as when an administrator or NTP sets it: intervals are not the wall clock's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from control.auth.user import UserInfo
from kube.api import coordination_v1, core_v1, meta_v1
from kube.build import user_agent
from kube.clock import SystemClock
from tests.support.control import ADMIN, api_server
from tests.support.hollow import HollowNodes, eventually, running
from tests.support.hollow_cluster import Cluster, deployment, running_pods

HOUR, TEN_YEARS = 3600.0, 10 * 365.25 * 86_400


class SteppedClock(SystemClock):
    """The machine's clock with a wall clock that can be set, `time.time` included."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead, machine = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: machine() + self._ahead)

    def step(self, seconds: float) -> None:
        self._ahead += seconds

    def now(self) -> datetime:
        return datetime.fromtimestamp(time.time(), UTC)


@pytest.mark.parametrize("step", [HOUR, -HOUR, TEN_YEARS, -TEN_YEARS])
async def test_a_step_of_the_clock_loses_no_event_lease_node_or_pod_and_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    clock = SteppedClock(monkeypatch)
    async with api_server(tmp_path, clock, enable_controllers=True, enable_scheduler=True) as server:
        # In process: a certificate would not be valid yet, or no longer.
        client = server.api.client(UserInfo(ADMIN[0], groups=ADMIN[1]), user_agent("test"))
        nodes = HollowNodes(client)
        cluster = Cluster(server, client, nodes)
        async with running(nodes.run()):
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            await nodes.register("n1")
            await client.create(deployment("before", replicas=2))
            await eventually(lambda: running_pods(cluster, 2))
            meta = meta_v1.ObjectMeta(name="kept", namespace="default")
            about = core_v1.ObjectReference(kind="Node", name="n1")
            await client.create(core_v1.Event(metadata=meta, involved_object=about, reason="Kept"))
            pods = {pod.metadata.uid for pod in await cluster.pods()}
            lease = await client.get(coordination_v1.Lease, "kube-controller-manager", "kube-system")

            clock.step(step)

            await client.create(deployment("after", replicas=2))
            await eventually(lambda: running_pods(cluster, 4))
            await asyncio.sleep(3)  # leases are renewed every two seconds, and nodes looked at every five
            assert pods <= {pod.metadata.uid for pod in await cluster.pods() if not pod.metadata.deletion_timestamp}
            assert [event.metadata.name for event in await cluster.events("Kept")] == ["kept"]
            now = await client.get(coordination_v1.Lease, "kube-controller-manager", "kube-system")
            assert now.spec.holder_identity == lease.spec.holder_identity
            assert now.spec.lease_transitions == lease.spec.lease_transitions
            node = await client.get(core_v1.Node, "n1")
            assert [c.status for c in node.status.conditions if c.type == "Ready"] == ["True"]
            assert not node.spec.taints
