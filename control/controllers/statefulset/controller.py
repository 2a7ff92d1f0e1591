"""StatefulSets: pods with names, order and storage of their own.

Upstream: pkg/controller/statefulset.
"""

from __future__ import annotations

import msgspec

from control.controllers import history
from control.controllers import pods as pod_rules
from control.controllers.concurrent_requests import for_each
from control.controllers.context import Context
from control.controllers.expectations import Expectations
from control.controllers.overlay import KEPT_SECONDS, Overlay
from control.controllers.ownership import by_controller_or_orphan, claim, claimable
from control.controllers.pod_control import namespace_terminating
from control.controllers.pod_events import OwnedPodEvents
from control.controllers.selector_index import CompiledSelectorIndex
from control.controllers.statefulset import identity, metrics
from control.controllers.statefulset.claim_owners import wanted_owners
from control.controllers.statefulset.plan import StatefulPlan, max_unavailable, plan
from control.controllers.statefulset.waiting import waiting
from control.controllers.step_counter import ENTRIES_PER_STEP, REQUEST_STEPS, StepCounter
from kube.api import apps_v1, core_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of, namespace_of

_CLAIMS, _LEAVING = "claims", "leaving claims"
"""Names of the indexes of sets, and of claims that are about to go, by how the claims' keys begin."""


class StatefulSetController:
    """Follows StatefulSets, their revisions, pods and claims."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("statefulset-controller")
        self._sets = context.informers.of(apps_v1.StatefulSet)
        self._selectors = CompiledSelectorIndex(self._sets)
        self._revisions = context.informers.of(apps_v1.ControllerRevision)
        self._pods = context.informers.of(core_v1.Pod)
        self._claims = context.informers.of(core_v1.PersistentVolumeClaim)
        self._latest_claims = Overlay(self._claims, context.clock)
        self._claims.add_index(_LEAVING, identity.leaving_prefixes)
        self._sets.add_index(_CLAIMS, identity.claim_prefixes)
        self._pods.add_index("claim", by_controller_or_orphan)
        self._revisions.add_index("claim", by_controller_or_orphan)
        self._latest_revisions = Overlay(self._revisions, context.clock)
        self._expectations = Expectations(self._clock)
        self.controller = Controller("statefulset", self.reconcile, workers=15, each=5, clock=self._clock)
        self._sets.subscribe(self._set_changed)
        self._pods.subscribe(OwnedPodEvents("StatefulSet", self.controller, self._expectations, self._selectors))
        self._claims.subscribe(self._claim_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # -- events -----------------------------------------------------------------------------------------------------
    def _set_changed(self, change: Change[apps_v1.StatefulSet]) -> None:
        if change.type == "DELETED":
            self._expectations.forget(change.key)
            metrics.deleted(change.new)
        self.controller.enqueue(change.key)

    def _claim_changed(self, change: Change[core_v1.PersistentVolumeClaim]) -> None:
        """A claim that is gone, or has other owners, may be what a pod waits for."""
        new, old = change.new, change.old
        if change.type != "DELETED" and (old is None or old.metadata.owner_references == new.metadata.owner_references):
            return
        for sts in self._sets.by_index(_CLAIMS, identity.claim_prefix(change.key)):
            self.controller.enqueue(key_of(sts))

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Take one StatefulSet a step on."""
        sts = self._sets.get(key)
        if sts is None:
            return None
        selector = await self._selectors.of(sts)
        settled = self._expectations.satisfied(
            key
        )  # before the pods are looked at: those made meanwhile are not among them
        pods = [
            pod
            for pod in await claim(self._client, sts, claimable(self._pods, sts), selector)
            if identity.ordinal_of(sts, pod) is not None
        ]
        known = self._latest_revisions.current(claimable(self._revisions, sts), f"{key}-")
        mine = await claim(self._client, sts, known, selector)
        past = await history.sync(self._client, sts, sts.spec.template, mine, sts.status.collision_count)
        self._latest_revisions.wrote(past.current)
        revisions = {name_of(revision): revision for revision in [*past.old, past.current]}
        update = name_of(past.current)
        current = sts.status.current_revision or update
        current = current if current in revisions else update
        todo = plan(sts, pods, current, update, self._clock.now(), self._reserved(sts))
        todo.status.collision_count = past.collision_count
        metrics.reconciled(sts, todo.status, max_unavailable(sts))
        failure: StatusError | None = None
        if settled:
            waits = waiting(sts, pods, todo, update, self._clock.now())
            self._recorder.decisions.changed(sts, "next step", waits)
            await self._own_claims(sts, pods, todo)
            lost = await self._make_lost_claims(sts, todo)
            failure = await self._apply(key, sts, todo, revisions) or lost
        in_use = {current, update} | {identity.revision_of(pod) for pod in pods}
        await history.truncate(self._client, history.surplus(past, sts.spec.revision_history_limit, in_use))
        if todo.status != sts.status:
            await self._client.update_status(msgspec.structs.replace(sts, status=todo.status))
        if failure is not None:
            raise failure
        return pod_rules.next_availability(pods, sts.spec.min_ready_seconds or 0, self._clock.now())

    async def _apply(
        self,
        key: str,
        sts: apps_v1.StatefulSet,
        todo: StatefulPlan,
        revisions: dict[str, apps_v1.ControllerRevision],
    ) -> StatusError | None:
        if not todo.create and not todo.delete:
            return None
        for pod in todo.failed:
            if pod.status.phase == "Failed":
                message = f"StatefulSet {key} is recreating failed Pod {name_of(pod)}"
                self._recorder.event(sts, "Warning", "RecreatingFailedPod", message)
            else:
                message = f"StatefulSet {key} is recreating terminated Pod {name_of(pod)}"
                self._recorder.event(sts, "Normal", "RecreatingTerminatedPod", message)
        templates = {name: history.template_of(revisions[name]) for name in {name for _, name in todo.create}}

        async def one(new: tuple[int, str]) -> None:
            await self._create(key, sts, new[0], templates[new[1]], new[1])

        with self._expectations.requesting(key, len(todo.create), [pod.metadata.uid or "" for pod in todo.delete]):
            deletion = await for_each(todo.delete, lambda pod: self._delete(key, sts, pod))
            creation = await for_each(todo.create, one)
        return deletion or creation

    async def _create(
        self, key: str, sts: apps_v1.StatefulSet, ordinal: int, template: core_v1.PodTemplateSpec, revision: str
    ) -> None:
        pod = identity.pod_of(sts, ordinal, template, revision)
        what = f"create Pod {name_of(pod)} in StatefulSet {name_of(sts)}"
        try:
            await self._make_claims(sts, ordinal, name_of(pod))
            await self._client.create(pod)
        except StatusError as error:
            self._expectations.creation_observed(key)
            if namespace_terminating(error):
                return
            if not error.already_exists:
                self._recorder.event(sts, "Warning", "FailedCreate", f"{what} failed error: {error}")
            raise
        self._recorder.event(sts, "Normal", "SuccessfulCreate", f"{what} successful")

    def _reserved(self, sts: apps_v1.StatefulSet) -> set[int]:
        """Return the ordinals whose pods, where they are to be made, have a claim that is about to go."""
        prefixes = frozenset(identity.claim_prefixes(sts))
        cached = [each for prefix in prefixes for each in self._claims.by_index(_LEAVING, prefix)]
        found = set()
        for each in self._latest_claims.current(cached, f"{namespace_of(sts)}/"):
            key = key_of(each)
            prefix = identity.claim_prefix(key)
            ordinal = key[len(prefix) :]
            if prefix in prefixes and identity.is_leaving(each, f"{name_of(sts)}-{ordinal}"):
                found.add(int(ordinal))
        return found

    async def _make_lost_claims(self, sts: apps_v1.StatefulSet, todo: StatefulPlan) -> StatusError | None:
        """Make claims that went while their pods had not begun (upstream: createMissingPersistentVolumeClaims)."""
        for pod in todo.pending:
            try:
                await self._make_claims(sts, identity.ordinal_of(sts, pod) or 0, name_of(pod))
            except StatusError as error:
                return None if namespace_terminating(error) else error
        return None

    async def _make_claims(self, sts: apps_v1.StatefulSet, ordinal: int, pod: str) -> None:
        counter = StepCounter()
        for template, key in identity.claim_keys(sts, ordinal):
            await counter.count()
            if self._latest_claims.get(key) is not None:
                continue
            await counter.count(REQUEST_STEPS)
            desired = identity.claim_of(sts, template, ordinal)
            desired.metadata.owner_references = wanted_owners(sts, desired, None, condemned=False)
            what = f"create Claim {name_of(desired)} Pod {pod} in StatefulSet {name_of(sts)}"
            try:
                await self._client.create(desired)
            except StatusError as error:
                if error.already_exists:
                    continue
                if not namespace_terminating(error):
                    self._recorder.event(sts, "Warning", "FailedCreate", f"{what} failed error: {error}")
                raise
            else:
                self._recorder.event(sts, "Normal", "SuccessfulCreate", f"{what} success")

    async def _delete(self, key: str, sts: apps_v1.StatefulSet, pod: core_v1.Pod) -> None:
        what = f"delete Pod {name_of(pod)} in StatefulSet {name_of(sts)}"
        try:
            await self._client.delete(core_v1.Pod, name_of(pod), namespace_of(pod), uid=pod.metadata.uid or "")
        except StatusError as error:
            self._expectations.deletion_observed(key, pod.metadata.uid or "")
            if not error.not_found:
                self._recorder.event(sts, "Warning", "FailedDelete", f"{what} failed error: {error}")
                raise
            return
        self._recorder.event(sts, "Normal", "SuccessfulDelete", f"{what} successful")

    async def _own_claims(self, sts: apps_v1.StatefulSet, pods: list[core_v1.Pod], todo: StatefulPlan) -> None:
        """Write the owners of claims as the retention policy wants them."""
        if not sts.spec.volume_claim_templates:
            return
        condemned, counter = {pod.metadata.uid for pod in todo.condemned}, StepCounter()
        for pod in pods:
            for _, key in identity.claim_keys(sts, identity.ordinal_of(sts, pod) or 0):
                await counter.count()
                found = self._latest_claims.get(key)
                if found is None:
                    continue
                await counter.count(len(found.metadata.owner_references) // ENTRIES_PER_STEP)
                owners = wanted_owners(sts, found, pod, condemned=pod.metadata.uid in condemned)
                if owners != found.metadata.owner_references:
                    await counter.count(REQUEST_STEPS)
                    metadata = msgspec.structs.replace(found.metadata, owner_references=owners)
                    written = await self._client.update(msgspec.structs.replace(found, metadata=metadata))
                    self._latest_claims.wrote(written)
                    # A claim deleted before the response stays recorded that long, and may block its pod.
                    self.controller.enqueue_after(key_of(sts), KEPT_SECONDS + 1)
