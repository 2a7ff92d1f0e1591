"""Deployments: roll pods from one template to the next by growing and shrinking ReplicaSets.

Each reconcile makes one step (make the new set, grow it, shrink old ones, or clean up) and writes the status; the change
that the step causes brings the key back. Upstream: pkg/controller/deployment/deployment_controller.go.
"""

from __future__ import annotations

import msgspec

from control.controllers import pods as pod_rules
from control.controllers.context import Context
from control.controllers.ownership import (
    by_controller_or_orphan,
    children_of,
    claim,
    claimable,
    controller_of,
    controller_uid,
)
from control.controllers.selector_index import CompiledSelectorIndex
from kube.api import apps_v1, core_v1
from kube.controller import Controller
from kube.informer import Change
from kube.object_names import key_of

from . import revisions, rolling, status
from .rollout import Rollout


class DeploymentController:
    """Follows Deployments, ReplicaSets and (for Recreate) pods."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("deployment-controller")
        self._deployments = context.informers.of(apps_v1.Deployment)
        self._sets = context.informers.of(apps_v1.ReplicaSet)
        self._pods = context.informers.of(core_v1.Pod)
        self._selectors = CompiledSelectorIndex(self._deployments)
        self._sets.add_index("claim", by_controller_or_orphan)
        self._pods.add_index("claim", by_controller_or_orphan)
        self.controller = Controller("deployment", self.reconcile, workers=15, each=5, clock=self._clock)
        self._deployments.subscribe(lambda change: self.controller.enqueue(change.key))
        self._sets.subscribe(self._set_changed)
        self._pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # -- events -----------------------------------------------------------------------------------------------------
    def _set_changed(self, change: Change[apps_v1.ReplicaSet]) -> None:
        rs, old = change.new, change.old
        if old is not None and controller_uid(old) != controller_uid(rs):
            self._enqueue_owner_of(old)
        if controller_of(rs) is not None:
            self._enqueue_owner_of(rs)
        elif change.type != "DELETED":
            self._selectors.each(rs.metadata.namespace or "", rs.metadata.labels, self.controller.enqueue)

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        """Recreate waits for the last old pod to go."""
        reference = controller_of(change.new)
        if reference is None or reference.kind != "ReplicaSet":
            return
        if change.type != "DELETED" and not pod_rules.is_terminal(change.new):
            return
        rs = self._sets.get(f"{change.new.metadata.namespace}/{reference.name}")
        deployment = self._owner_of(rs) if rs is not None else None
        if deployment is not None and not revisions.is_rolling(deployment):
            self.controller.enqueue(key_of(deployment))

    def _owner_of(self, rs: apps_v1.ReplicaSet) -> apps_v1.Deployment | None:
        reference = controller_of(rs)
        if reference is None or reference.kind != "Deployment":
            return None
        found = self._deployments.get(f"{rs.metadata.namespace}/{reference.name}")
        return found if found is not None and found.metadata.uid == reference.uid else None

    def _enqueue_owner_of(self, rs: apps_v1.ReplicaSet) -> None:
        if (owner := self._owner_of(rs)) is not None:
            self.controller.enqueue(key_of(owner))

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Move one Deployment a step on."""
        deployment = self._deployments.get(key)
        if deployment is None:
            return None
        selector = await self._selectors.of(deployment)
        if selector.empty:
            await self._selects_all(deployment)
            return None
        sets = await claim(self._client, deployment, claimable(self._sets, deployment), selector)
        new = await revisions.new_set(deployment, sets)
        rollout = Rollout(self._client, self._recorder, deployment, sets, new, self._clock.now())
        if deployment.metadata.deletion_timestamp is not None:
            await rollout.write(status.count(deployment, rollout.sets, rollout.new, self._clock.now()))
            return None
        conditions = status.paused(deployment, self._clock.now())
        if conditions is not None:
            rollout.set_conditions(conditions)
        if deployment.spec.paused or rolling.is_scaling(deployment, rollout.sets):
            await self._scale(rollout)
            return None
        if revisions.is_rolling(deployment):
            await self._roll(rollout)
        else:
            await self._recreate(rollout)
        new_status = status.rollout(rollout.deployment, rollout.sets, rollout.new, self._clock.now())
        await rollout.write(new_status)
        return status.check_stuck_in(rollout.deployment, new_status, self._clock.now())

    async def _scale(self, rollout: Rollout) -> None:
        await rollout.sync_revision(create=False)
        await rollout.resize(rolling.scale(rollout.deployment, rollout.new, rollout.old))
        if rollout.deployment.spec.paused:
            await rollout.clean_up()
        await rollout.write(status.count(rollout.deployment, rollout.sets, rollout.new, self._clock.now()))

    async def _roll(self, rollout: Rollout) -> None:
        await rollout.sync_revision(create=True)
        deployment, new = rollout.deployment, rollout.new
        if new is None:
            return
        if await rollout.resize(rolling.grow_new(deployment, new, rollout.sets)):
            return
        if await rollout.resize(rolling.shrink_old(deployment, new, rollout.old)):
            return
        waits = rolling.waiting(deployment, new, rollout.old)
        self._recorder.decisions.changed(deployment, "rollout", waits)
        if status.complete(deployment, deployment.status):
            await rollout.clean_up()

    async def _recreate(self, rollout: Rollout) -> None:
        await rollout.sync_revision(create=False)
        if await rollout.resize(rolling.stop_old(rollout.old)) or self._old_pods_run(rollout):
            waits = "waits for the old pods to end before it creates new ones (strategy Recreate)"
            self._recorder.decisions.changed(rollout.deployment, "rollout", waits)
            return
        await rollout.sync_revision(create=True)
        deployment, new = rollout.deployment, rollout.new
        if new is not None and revisions.wanted(new) != revisions.wanted(deployment):
            await rollout.resize([rolling.Resize(new, revisions.wanted(deployment))])
        if status.complete(deployment, deployment.status):
            await rollout.clean_up()

    def _old_pods_run(self, rollout: Rollout) -> bool:
        pods = (pod for rs in rollout.old for pod in children_of(self._pods, rs))
        return rolling.old_pods_run(rollout.old, pods)

    async def _selects_all(self, deployment: apps_v1.Deployment) -> None:
        message = "This deployment is selecting all pods. A non-empty selector is required."
        self._recorder.event(deployment, "Warning", "SelectingAll", message)
        if (deployment.status.observed_generation or 0) < (deployment.metadata.generation or 0):
            seen = msgspec.structs.replace(deployment.status, observed_generation=deployment.metadata.generation)
            await self._client.update_status(msgspec.structs.replace(deployment, status=seen))
