"""A namespace whose objects take long leaves workers of the controllers to the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control.controllers.autoscaling.controller import AutoscalingController
from control.controllers.context import Context
from control.controllers.cronjob.controller import CronJobController
from control.controllers.daemonset.controller import DaemonSetController
from control.controllers.deployment.controller import DeploymentController
from control.controllers.disruption import DisruptionController
from control.controllers.endpoints.endpoints import EndpointsController
from control.controllers.endpoints.mirroring import EndpointSliceMirroringController
from control.controllers.endpoints.slices import EndpointSliceController
from control.controllers.ephemeral_volumes import EphemeralVolumeController
from control.controllers.job.controller import JobController
from control.controllers.replicaset import ReplicaSetController
from control.controllers.resource_claims.claims import ResourceClaimController
from control.controllers.resource_quota import ResourceQuotaController
from control.controllers.statefulset.controller import StatefulSetController
from kube.controller import Controller
from tests.support.clock import FakeClock, settle
from tests.support.product_world import World
from tests.support.working import working

CONTROLLERS = (
    AutoscalingController,
    CronJobController,
    DaemonSetController,
    DeploymentController,
    DisruptionController,
    EndpointSliceController,
    EndpointSliceMirroringController,
    EndpointsController,
    EphemeralVolumeController,
    JobController,
    ReplicaSetController,
    ResourceClaimController,
    ResourceQuotaController,
    StatefulSetController,
)


@pytest.mark.parametrize("kind", CONTROLLERS)
async def test_two_namespaces_without_end_do_not_stop_a_third(kind: Any) -> None:
    reconciled, controllers = list[str](), list[Controller]()

    async def reconcile(key: str) -> None:
        reconciled.append(key)
        if key.startswith("slow"):
            await asyncio.Event().wait()

    def make(context: Context) -> Any:
        made = kind(context)
        made.controller._reconcile = reconcile
        controllers.append(made.controller)
        return made

    async with working(World(), FakeClock(), make):
        for number in range(40):
            for namespace in ("slow-1", "slow-2"):
                controllers[0].enqueue(f"{namespace}/{number}")
        await settle(10)
        controllers[0].enqueue("shop/a")
        await settle(10)
    assert reconciled[-1] == "shop/a" and len(reconciled) > 3
