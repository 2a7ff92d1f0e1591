"""Runs the workers of this node's pods: pods come from the API's watch and from this machine's manifests.

There is one worker for each pod UID. A pod that is created under the name of one that still terminates does not wait for it:
names are not identities here. What the runtime has of pods that the API does not know is terminated like a deleted pod, but
only after the first list of pods is in: an API server that is away must not cost a container.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from agent import step_shares
from agent.cgroups import qos
from agent.lifecycle import End
from agent.lifecycle.resize import PendingResize
from agent.managers.resize import refuse_resize
from agent.pods import preemption
from agent.pods.admission import admit
from agent.pods.allocation import as_allocated
from agent.pods.child_task import UNEXPECTED_SECONDS
from agent.pods.dependencies import PodDependencies
from agent.pods.lifecycle_events import LifecycleEvents, RelistHealth
from agent.pods.manager import PodManager
from agent.pods.mirror_pods import MirrorPods
from agent.pods.references import references_of
from agent.pods.resize_admission import pending, pending_for_swap
from agent.pods.setup import may_swap
from agent.pods.state import PodState
from agent.pods.static import is_mirror
from agent.pods.worker import PodWorker
from agent.runtime import RuntimePod
from agent.runtime_records import PodRuntime
from agent.status.phase import ENDED_PHASES
from kube import cancellation
from kube.api import core_v1, meta_v1
from kube.errors import StatusError
from kube.events import WARNING
from kube.informer import Change
from kube.loops import Loops
from kube.object_names import key_of

log = logging.getLogger(__name__)

FIRST_READ_RETRY, LAST_READ_RETRY = 0.5, 10.0
"""Seconds before the Node object is read again for a pod, which is not rejected for old labels."""


class PodWorkers:
    """Starts a worker for each of this node's pods, in `pods`; `refresh_node` reads the node object's labels again."""

    def __init__(
        self,
        deps: PodDependencies,
        pods: PodManager,
        mirrors: MirrorPods,
        refresh_node: Callable[[], Awaitable[None]],
        relist: RelistHealth,
    ) -> None:
        self._deps, self._pods, self._mirrors = deps, pods, mirrors
        self._refresh_node = refresh_node
        self._static: dict[str, core_v1.Pod] = {}
        self._workers = pods.workers
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._found: dict[str, RuntimePod] = {}
        """The runtime's pods of the first listing, by UID, until a worker takes them over."""
        self._awaiting_node: dict[str, core_v1.Pod] = {}
        """Pods that wait for the node's labels."""
        self._group: asyncio.TaskGroup | None = None
        self._pods_changed = asyncio.Event()
        self._api_listed = False
        self._lifecycle_events = LifecycleEvents(deps, self._workers, self._unknown, relist)

    # -- sources ------------------------------------------------------------------------------------------------------
    def pod_changed(self, change: Change[core_v1.Pod]) -> None:
        """Handle a change from the watch of this node's pods."""
        pod = change.new
        uid = pod.metadata.uid or ""
        if is_mirror(pod):
            self._mirror_changed(pod, gone=change.type == "DELETED")
            return
        if change.type == "DELETED":
            self._awaiting_node.pop(uid, None)
            worker = self._workers.get(uid)
            if worker is not None:
                worker.source_removed()
            return
        if uid in self._awaiting_node:
            if pod.metadata.deletion_timestamp is None:
                self._awaiting_node[uid] = pod
                return
            del self._awaiting_node[uid]  # it needs no admission
        worker = self._workers.get(uid)
        if worker is None:
            self._add(pod)
        else:
            if not worker.state.terminating:
                self._deps.references.track(uid, references_of(pod))
            worker.update(pod)

    def _mirror_changed(self, mirror: core_v1.Pod, *, gone: bool) -> None:
        self._mirrors.update_mirror(mirror, gone=gone)
        if gone:
            self._deps.writer.forget(mirror.metadata.uid or "")
        for worker in self._workers.values():
            if worker.state.static and key_of(worker.state.pod) == key_of(mirror):
                worker.update_mirror(self._mirrors.mirror_of_static(worker.state.pod))

    def clock_stepped(self) -> None:
        """Have all pods planned again after a step of the wall clock."""
        for worker in self._workers.values():
            worker.clock_stepped()

    def static_pods_changed(self, pods: Mapping[str, core_v1.Pod]) -> None:
        """Handle the manifests of this machine, by UID."""
        for uid in self._static.keys() - pods.keys():
            self._awaiting_node.pop(uid, None)
        self._static = dict(pods)
        self._mirrors.set_static_pods(pods)
        for worker in list(self._workers.values()):
            if worker.state.static and worker.state.uid not in pods:
                worker.source_removed()
        self._start_static()

    def _start_static(self) -> None:
        """Start the static pods whose name is free: of a changed manifest, the old pod terminates first."""
        names = {key_of(worker.state.pod) for worker in self._workers.values() if worker.state.static}
        for uid, pod in self._static.items():
            if uid not in self._workers and uid not in self._awaiting_node and key_of(pod) not in names:
                self._add(pod, static=True)
                self._update_mirror(uid, pod)

    def _update_mirror(self, uid: str, pod: core_v1.Pod) -> None:
        worker = self._workers.get(uid)
        if worker is not None and worker.state.static:
            worker.update_mirror(self._mirrors.mirror_of_static(pod))

    def api_synced(self) -> None:
        """Terminate what the runtime has of unknown pods: the first list of pods is in."""
        self._api_listed = True
        for uid in list(self._found):
            self._terminate_orphan(self._found.pop(uid))

    # -- workers ------------------------------------------------------------------------------------------------------
    def _add(self, pod: core_v1.Pod, *, static: bool = False, node_read: bool = False) -> None:
        """Admit a pod or reject it; `static`: from a manifest; `node_read`: the Node object was read just now."""
        uid = pod.metadata.uid or ""
        found = self._found.pop(uid, None)
        runtime = found.runtime if found else None
        rejected: End | None = None
        preempted: tuple[core_v1.Pod, ...] = ()
        if runtime is None and pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED_PHASES:
            others = [state.requests for state in self._active()]
            own = {w.state.uid for w in self._workers.values() if w.state.static} | ({uid} if static else set())
            allocated = as_allocated(pod, self._deps.resources.allocated.of(uid))
            admission = admit(allocated, others, self._deps.node, self._deps.config, static=own)
            rejected, preempted = admission.rejected, admission.preempt
            by_node = rejected is not None and rejected.reason in ("NodeAffinity", "TaintToleration")
            if by_node and not node_read and self._group is not None:
                # The scheduler may have seen newer labels and taints: nothing is rejected for old ones.
                self._awaiting_node[uid] = pod
                self._read_node(self._group, uid, static=static)
                return
        worker = self._create(pod, runtime, static=static, rejection=rejected)
        self._deps.startup.pod_added(pod, self._deps.now())
        if rejected is not None:
            worker.reporter.event(WARNING, rejected.reason, rejected.event_message)
        if preempted:
            now = self._deps.clock.monotonic()
            worker.state.preempted = {v.metadata.uid or "": now + preemption.wait_seconds(v) for v in preempted}
            for uid in worker.state.preempted:
                self._pods.evict(uid, preemption.END, grounds=f"the critical pod lacks {admission.wanting}")
                self._deps.metrics.preemptions.inc(admission.wanting)
        self._start(worker)

    async def _read_node_and_add(self, uid: str, *, static: bool) -> None:
        """Read the Node object, until that succeeds, and add a pod that waits for it."""
        delay = FIRST_READ_RETRY
        while uid in self._awaiting_node:
            try:
                await cancellation.as_error(self._refresh_node())
                break
            except StatusError as error:
                log.warning("reading the Node object for pod %s: %s", uid, error)
                if error.not_found:
                    break  # somebody deleted it: what is known of it is all there is
            except Exception:
                # An error of one pod must not stop the others.
                log.exception("reading the Node object for pod %s failed", uid)
            await self._deps.clock.sleep(delay)
            delay = min(delay * 2, LAST_READ_RETRY)
        pod = self._awaiting_node.pop(uid, None)
        if pod is not None:
            self._add(pod, static=static, node_read=True)
            self._update_mirror(uid, pod)

    def _unknown(self, found: RuntimePod) -> None:
        """Terminate what the runtime has of a pod without a worker, where no source has the pod."""
        if self._api_listed and found.uid not in self._static:
            self._terminate_orphan(found)

    def _terminate_orphan(self, found: RuntimePod) -> None:
        """Terminate a pod that only the runtime knows; its labels are all there is of its spec."""
        if found.uid in self._workers:
            return
        log.info("pod %s/%s (%s) is not in the API: terminating it", found.namespace, found.name, found.uid)
        self._deps.metrics.orphans.inc()
        metadata = meta_v1.ObjectMeta(name=found.name, namespace=found.namespace, uid=found.uid)
        grace = next((c.grace for c in found.runtime.containers if c.grace is not None), None)
        spec = core_v1.PodSpec(termination_grace_period_seconds=grace)
        worker = self._create(core_v1.Pod(metadata=metadata, spec=spec), found.runtime)
        worker.source_removed()
        self._start(worker)

    def _create(
        self, pod: core_v1.Pod, runtime: PodRuntime | None, *, static: bool = False, rejection: End | None = None
    ) -> PodWorker:
        deps, uid = self._deps, pod.metadata.uid or ""
        state = PodState(
            pod,
            runtime,
            static=static,
            rejection=rejection,
            allocated=as_allocated(pod, deps.resources.allocated.of(uid)),
            clock=deps.clock,
            back_off_max=deps.config.back_off_max,
        )
        resources_released = partial(self._pods.resources_released, uid)
        return PodWorker(
            state,
            deps,
            pending_resize=self._pending_resize,
            size_changed=self._pods_changed.set,
            resources_released=resources_released,
            exceeded_grace=self._pods.exceeded_grace,
        )

    def _active(self) -> list[PodState]:
        """Return the pods that have resources here, as upstream also those that are being terminated: it may take long."""
        states = [worker.state for worker in self._workers.values()]
        return [state for state in states if not state.termination.finished and state.termination.rejection is None]

    def _start(self, worker: PodWorker) -> None:
        self._workers[worker.state.uid] = worker
        if self._group is not None:  # otherwise run() starts it
            self._run_worker(self._group, worker)
        self._pods_changed.set()

    def _run_worker(self, group: asyncio.TaskGroup, worker: PodWorker) -> None:
        name = f"pod {worker.state.pod.metadata.namespace}/{worker.state.pod.metadata.name}"
        self._tasks[worker.state.uid] = group.create_task(self._work(worker), name=name)

    def _read_node(self, group: asyncio.TaskGroup, uid: str, *, static: bool) -> None:
        group.create_task(self._read_node_and_add(uid, static=static), name=f"Node object for pod {uid}")

    async def _work(self, worker: PodWorker) -> None:
        namespace = worker.state.pod.metadata.namespace or ""
        while True:
            try:
                await cancellation.as_error(step_shares.charged(worker.run(), namespace))
                break
            except Exception:
                # An error of one pod must not stop the others.
                log.exception("the worker of pod %s failed", worker.state.uid)
                await self._deps.clock.sleep(UNEXPECTED_SECONDS)
                worker.request_sync()
        uid = worker.state.uid
        self._workers.pop(uid, None)
        self._tasks.pop(uid, None)
        self._pods.resources_released(uid)
        self._deps.writer.forget(uid)
        self._deps.startup.forget(uid)
        self._pods_changed.set()
        for other in self._workers.values():
            if other.state.resize.pending is not None:
                other.request_sync()  # there may be room for its resize now
        if worker.state.static:
            self._start_static()

    def _pending_resize(self, pod: core_v1.Pod) -> PendingResize | None:
        """Decide why a pod cannot have its new size in addition to the others on the node; None if it can."""
        others = [state.requests for state in self._active() if state.uid != pod.metadata.uid]
        deps, state = self._deps, self._workers[pod.metadata.uid or ""].state
        return (
            pending_for_swap(
                pod, state.resize.allocated, lambda pod, container: may_swap(deps, pod, container, static=state.static)
            )
            or refuse_resize(deps.managers.options, pod, state.resize.allocated)
            or pending(pod, others, deps.node.allocatable)
        )

    async def _share_cpu(self) -> None:
        """Keep the CPU shares of the burstable class at the sum of its pods' requests."""
        self._pods_changed.set()  # the last attempt may have failed
        while True:
            await self._pods_changed.wait()
            self._pods_changed.clear()
            burstable = (state for state in self._active() if qos.qos_class(state.pod) == qos.BURSTABLE)
            await self._deps.cgroups.set_burstable_shares(sum(state.cpu_request for state in burstable))

    # -- the runtime --------------------------------------------------------------------------------------------------
    async def load(self) -> None:
        """Read what the runtime has, once at the start. Raise CRIError."""
        self._found = await self._deps.runtime.pods()

    async def run(self) -> None:
        """Follow the runtime and run workers until cancelled; containers are left as they are.

        After an error it may be called again: it continues with the workers that there are.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._begin(group)
        finally:
            self._group = None

    def _begin(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        for worker in self._workers.values():
            self._run_worker(group, worker)
            worker.request_sync()
        for uid in self._awaiting_node:
            self._read_node(group, uid, static=uid in self._static)
        loops = {"runtime events": self._lifecycle_events.follow, "relist": self._lifecycle_events.relist_forever}
        if self._deps.config.cgroups_per_qos:
            loops["CPU shares"] = self._share_cpu
        for name, work in loops.items():
            group.create_task(Loops(self._deps.clock).run(name, work), name=name)
