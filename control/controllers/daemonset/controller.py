"""DaemonSets: one pod on every node that should have one.

The pods are bound by the scheduler like all others; each names its node by affinity.
Upstream: pkg/controller/daemon/daemon_controller.go.
"""

from __future__ import annotations

import msgspec

from control.controllers import history
from control.controllers import pods as pod_rules
from control.controllers.concurrent_requests import for_each
from control.controllers.context import Context
from control.controllers.daemonset.failing import Failures
from control.controllers.daemonset.placement import Placement, pod_spec
from control.controllers.daemonset.plan import GENERATION, GENERATION_LABEL, DaemonPlan, plan
from control.controllers.expectations import Expectations
from control.controllers.overlay import Overlay
from control.controllers.ownership import by_controller_or_orphan, claim, claimable
from control.controllers.pod_control import PodControl, namespace_terminating, pod_from_template, slow_start
from control.controllers.pod_events import OwnedPodEvents
from control.controllers.selector_index import CompiledSelectorIndex
from control.controllers.step_counter import StepCounter
from kube.api import apps_v1, core_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of

BURST = 250


class DaemonSetController:
    """Follows DaemonSets, their revisions, pods and nodes."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("daemonset-controller")
        self._sets = context.informers.of(apps_v1.DaemonSet)
        self._selectors = CompiledSelectorIndex(self._sets)
        self._revisions = context.informers.of(apps_v1.ControllerRevision)
        self._pods = context.informers.of(core_v1.Pod)
        self._nodes = context.informers.of(core_v1.Node)
        self._pods.add_index("claim", by_controller_or_orphan)
        self._revisions.add_index("claim", by_controller_or_orphan)
        self._latest_revisions = Overlay(self._revisions, context.clock)
        self._expectations = Expectations(self._clock)
        self._failures: dict[str, Failures] = {}
        self._placements: dict[str, tuple[core_v1.PodSpec, Placement]] = {}
        self._control = PodControl(self._client, self._recorder)
        self.controller = Controller("daemonset", self.reconcile, workers=6, each=2, clock=self._clock)
        self._sets.subscribe(self._set_changed)
        self._pods.subscribe(OwnedPodEvents("DaemonSet", self.controller, self._expectations, self._selectors))
        self._nodes.subscribe(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # -- events -----------------------------------------------------------------------------------------------------
    def _set_changed(self, change: Change[apps_v1.DaemonSet]) -> None:
        if change.type == "DELETED":
            self._expectations.forget(change.key)
            self._failures.pop(change.new.metadata.uid or "", None)
            self._placements.pop(change.key, None)
        self.controller.enqueue(change.key)

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        old, new = change.old, change.new
        if old is not None and change.type == "MODIFIED":
            if old.metadata.labels == new.metadata.labels and old.spec.taints == new.spec.taints:
                return
        for ds in self._sets.list():
            self.controller.enqueue(key_of(ds))

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Reconcile the pods, revisions and status of one DaemonSet."""
        ds = self._sets.get(key)
        if ds is None:
            return None
        selector = await self._selectors.of(ds)
        if selector.empty:
            message = "This daemon set is selecting all pods. A non-empty selector is required."
            self._recorder.event(ds, "Warning", "SelectingAll", message)
            return None
        verdicts = await self._verdicts(ds)
        settled = self._expectations.satisfied(
            key
        )  # before the pods are looked at: those made meanwhile are not among them
        pods = await claim(self._client, ds, claimable(self._pods, ds), selector)
        known = self._latest_revisions.current(claimable(self._revisions, ds), f"{key}-")
        mine = await claim(self._client, ds, known, selector)
        past = await history.sync(self._client, ds, ds.spec.template, mine, ds.status.collision_count)
        self._latest_revisions.wrote(past.current)
        revision = past.current.metadata.labels[history.HASH_LABEL]
        failures = self._failures.setdefault(ds.metadata.uid or "", Failures()).at(ds.metadata.generation or 0)
        monotonic = self._clock.monotonic()
        todo = plan(
            ds,
            pods,
            verdicts,
            revision,
            settled=settled,
            now=self._clock.now(),
            wait=lambda node: failures.wait(node, monotonic),
        )
        for pod, node in todo.failed:
            if pod.status.phase == "Failed":
                failures.note(node, monotonic)
        todo.status.collision_count = past.collision_count
        failure = await self._apply(key, ds, todo, revision)
        in_use = {pod.metadata.labels.get(history.HASH_LABEL, "") for pod in pods}
        await history.truncate(self._client, history.surplus(past, ds.spec.revision_history_limit, in_use))
        if todo.status != ds.status:
            await self._client.update_status(msgspec.structs.replace(ds, status=todo.status))
        if failure is not None:
            raise failure
        available = pod_rules.next_availability(pods, ds.spec.min_ready_seconds or 0, self._clock.now())
        return min((each for each in (available, todo.again) if each is not None), default=None)

    async def _verdicts(self, ds: apps_v1.DaemonSet) -> dict[str, tuple[bool, bool]]:
        """Return of each node whether it should have a pod, and whether one that is there may stay."""
        placement, counter, found = self._placement(ds), StepCounter(), {}
        for node in self._nodes.list():
            found[name_of(node)] = placement.belongs(node)
            await counter.count(placement.steps)
        return found

    def _placement(self, ds: apps_v1.DaemonSet) -> Placement:
        """Return where the pods of a template belong; it is read once for each state of the DaemonSet."""
        spec, key = ds.spec.template.spec, key_of(ds)
        known = self._placements.get(key)
        if known is not None and known[0] is spec:
            return known[1]
        placement = Placement(spec)
        if self._sets.get(key) is ds:  # not one that went meanwhile
            self._placements[key] = spec, placement
        return placement

    async def _apply(self, key: str, ds: apps_v1.DaemonSet, todo: DaemonPlan, revision: str) -> StatusError | None:
        for pod, node in todo.failed:
            if pod.status.phase == "Failed":
                message = f"Found failed daemon pod {key_of(pod)} on node {node}, will try to kill it"
                self._recorder.event(ds, "Warning", "FailedDaemonPod", message)
            else:
                message = f"Found succeeded daemon pod {key_of(pod)} on node {node}, will try to delete it"
                self._recorder.event(ds, "Normal", "SucceededDaemonPod", message)
        wanted, doomed = todo.create[:BURST], todo.delete[:BURST]
        if not wanted and not doomed:
            return None

        async def one(number: int) -> None:
            try:
                await self._control.create(_pod(ds, wanted[number], revision), ds)
            except StatusError as error:
                self._expectations.creation_observed(key)
                if not namespace_terminating(error):
                    raise

        with self._expectations.requesting(key, len(wanted), [pod.metadata.uid or "" for pod in doomed]):
            failure = await for_each(doomed, lambda pod: self._delete(key, ds, pod))
            tried, refused = await slow_start(len(wanted), one)
        self._expectations.creation_observed(key, len(wanted) - tried)
        return refused or failure

    async def _delete(self, key: str, ds: apps_v1.DaemonSet, pod: core_v1.Pod) -> None:
        try:
            await self._control.delete(pod, ds)
        except StatusError as error:
            self._expectations.deletion_observed(key, pod.metadata.uid or "")
            if not error.not_found:
                raise


def _pod(ds: apps_v1.DaemonSet, node: str, revision: str) -> core_v1.Pod:
    pod = pod_from_template(ds.spec.template, ds, generate_name=f"{name_of(ds)}-")
    pod.metadata.labels[history.HASH_LABEL] = revision
    generation = ds.metadata.annotations.get(GENERATION)
    if generation is not None:
        pod.metadata.labels[GENERATION_LABEL] = generation
    pod.spec = pod_spec(pod.spec, node)
    return pod
