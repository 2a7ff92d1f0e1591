"""All pods of this node: from the API's watch and this machine's manifests to their workers.

One worker a pod UID. A pod that is made anew under the name of one that still ends waits for nobody: names are not
identities here. What the runtime has of pods that the API does not know is ended like a deleted pod, but only after
the first list of pods has come: an API server that is away must not cost a container.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from agent.cgroups import qos
from agent.lifecycle import End
from agent.pods import preemption
from agent.pods.admission import admit
from agent.pods.allocation import as_granted
from agent.pods.lifecycle_events import LifecycleEvents
from agent.pods.manager import PodManager
from agent.pods.mirrors import Mirrors
from agent.pods.references import references_of
from agent.pods.resize import Hold, hold, hold_swap
from agent.pods.setup import may_swap
from agent.pods.static import is_mirror
from agent.pods.toolbox import Toolbox
from agent.pods.worker import TROUBLE_SECONDS, PodWorker
from agent.runtime import Found
from agent.status.phase import ENDED_PHASES
from kube import cancellation
from kube.api import core_v1, meta_v1
from kube.client import key_of
from kube.events import WARNING
from kube.informer import Change

log = logging.getLogger(__name__)


class PodFollower:
    """Gives this node's pods workers, in `pods`; `refresh_node` has the node's labels read anew."""

    def __init__(
        self, tools: Toolbox, pods: PodManager, mirrors: Mirrors, refresh_node: Callable[[], Awaitable[None]]
    ) -> None:
        self._tools, self._pods, self._mirrors = tools, pods, mirrors
        self._refresh_node = refresh_node
        self._static: dict[str, core_v1.Pod] = {}
        self._workers = pods.workers
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._found: dict[str, Found] = {}
        """What the runtime had at the start, until a worker takes it over."""
        self._asking: dict[str, core_v1.Pod] = {}
        """Pods that wait for the node's labels."""
        self._group: asyncio.TaskGroup | None = None
        self._pods_changed = asyncio.Event()
        self._known_to_api = False
        self._lifecycle_events = LifecycleEvents(tools, self._workers, self._unknown)
        self.listing_problem = self._lifecycle_events.problem

    # -- sources ------------------------------------------------------------------------------------------------------
    def pod_changed(self, change: Change[core_v1.Pod]) -> None:
        """Take in a change from the watch of this node's pods."""
        pod = change.new
        uid = pod.metadata.uid or ""
        if is_mirror(pod):
            self._mirror_changed(pod, gone=change.type == "DELETED")
            return
        if change.type == "DELETED":
            self._asking.pop(uid, None)
            worker = self._workers.get(uid)
            if worker is not None:
                worker.vanish()
            return
        if uid in self._asking:
            self._asking[uid] = pod
            return
        worker = self._workers.get(uid)
        if worker is None:
            self._add(pod)
        else:
            if not worker.ending:
                self._tools.references.track(uid, references_of(pod))
            worker.update(pod)

    def _mirror_changed(self, mirror: core_v1.Pod, *, gone: bool) -> None:
        self._mirrors.seen(mirror, gone=gone)
        if gone:
            self._tools.writer.forget(mirror.metadata.uid or "")
        for worker in self._workers.values():
            if worker.static and key_of(worker.pod) == key_of(mirror):
                worker.mirrored(self._mirrors.of(worker.pod))

    def static_pods_changed(self, pods: Mapping[str, core_v1.Pod]) -> None:
        """Take in the manifests of this machine, by UID."""
        for uid in self._static.keys() - pods.keys():
            self._asking.pop(uid, None)
        self._static = dict(pods)
        self._mirrors.want(pods)
        for worker in list(self._workers.values()):
            if worker.static and worker.uid not in pods:
                worker.vanish()
        self._start_static()

    def _start_static(self) -> None:
        """Start the static pods whose name is free: of a changed manifest, the old pod ends first."""
        taken = {key_of(worker.pod) for worker in self._workers.values() if worker.static}
        for uid, pod in self._static.items():
            if uid not in self._workers and uid not in self._asking and key_of(pod) not in taken:
                self._add(pod, static=True)
                self._show_mirror(uid, pod)

    def _show_mirror(self, uid: str, pod: core_v1.Pod) -> None:
        worker = self._workers.get(uid)
        if worker is not None and worker.static:
            worker.mirrored(self._mirrors.of(pod))

    def api_synced(self) -> None:
        """The first list of pods is in: what the runtime has beside them is nobody's any more."""
        self._known_to_api = True
        for uid in list(self._found):
            self._end_orphan(self._found.pop(uid))

    # -- workers ------------------------------------------------------------------------------------------------------
    def _add(self, pod: core_v1.Pod, *, static: bool = False, asked: bool = False) -> None:
        """Take a pod in, or refuse it; `static`: from a manifest; `asked`: the node's labels were read just now."""
        uid = pod.metadata.uid or ""
        found = self._found.pop(uid, None)
        runtime = found.runtime if found else None
        rejected: End | None = None
        way: tuple[core_v1.Pod, ...] = ()
        if runtime is None and pod.metadata.deletion_timestamp is None and pod.status.phase not in ENDED_PHASES:
            others = [w.taken for w in self._workers.values() if not w.ending]
            own = {w.uid for w in self._workers.values() if w.static} | ({uid} if static else set())
            granted = as_granted(pod, self._tools.resources.allocated.of(uid))
            admission = admit(granted, others, self._tools.node, self._tools.config, static=own)
            rejected, way = admission.rejected, admission.preempt
            if rejected is not None and rejected.reason == "NodeAffinity" and not asked and self._group is not None:
                # The scheduler may have seen labels that we have not: nothing is refused for old ones.
                self._asking[uid] = pod
                self._group.create_task(self._ask_and_add(uid, static), name=f"node's labels for pod {uid}")
                return
        worker = PodWorker(pod, self._tools, runtime, static=static, rejected=rejected)
        self._tools.starts.seen(pod, self._tools.now())
        if rejected is not None:
            worker.event(WARNING, rejected.reason, rejected.told)
        if way:
            worker.waits_for = {victim.metadata.uid or "" for victim in way}
            for uid in worker.waits_for:
                self._pods.evict(uid, preemption.END)
                self._tools.observed.preemptions.inc(admission.wanting)
        self._start(worker)

    async def _ask_and_add(self, uid: str, static: bool) -> None:
        await self._refresh_node()
        pod = self._asking.pop(uid, None)
        if pod is not None:
            self._add(pod, static=static, asked=True)
            self._show_mirror(uid, pod)

    def _unknown(self, found: Found) -> None:
        """The runtime has something of a pod without a worker."""
        if self._known_to_api and found.uid not in self._static:
            self._end_orphan(found)

    def _end_orphan(self, found: Found) -> None:
        """End a pod that only the runtime knows of; its labels are all there is of its spec."""
        if found.uid in self._workers:
            return
        log.info("pod %s/%s (%s) is not in the API: ending it", found.namespace, found.name, found.uid)
        self._tools.observed.orphans.inc()
        metadata = meta_v1.ObjectMeta(name=found.name, namespace=found.namespace, uid=found.uid)
        grace = next((c.grace for c in found.runtime.containers if c.grace is not None), None)
        spec = core_v1.PodSpec(termination_grace_period_seconds=grace)
        worker = PodWorker(core_v1.Pod(metadata=metadata, spec=spec), self._tools, found.runtime)
        worker.vanish()
        self._start(worker)

    def _start(self, worker: PodWorker) -> None:
        assert self._group is not None, "run() has not begun"
        uid = worker.uid
        worker.hold_resize = self._hold_resize
        worker.size_changed = self._pods_changed.set
        worker.freed = lambda: self._pods.let_go_on(uid)
        self._workers[uid] = worker
        name = f"pod {worker.pod.metadata.namespace}/{worker.pod.metadata.name}"
        self._tasks[uid] = self._group.create_task(self._work(worker), name=name)
        self._pods_changed.set()

    async def _work(self, worker: PodWorker) -> None:
        while True:
            try:
                await cancellation.as_error(worker.run())
                break
            except Exception:
                # One pod's trouble must not become the node's.
                log.exception("the worker of pod %s failed", worker.uid)
                await self._tools.clock.sleep(TROUBLE_SECONDS)
                worker.look_again()
        self._workers.pop(worker.uid, None)
        self._tasks.pop(worker.uid, None)
        self._pods.let_go_on(worker.uid)
        self._tools.writer.forget(worker.uid)
        self._tools.starts.forget(worker.uid)
        self._pods_changed.set()
        for other in self._workers.values():
            if other.held is not None:
                other.look_again()  # there is room now, perhaps
        if worker.static:
            self._start_static()

    def _hold_resize(self, pod: core_v1.Pod) -> Hold | None:
        """Tell why a pod cannot have its new size, for what the others on the node have."""
        others = [w.taken for w in self._workers.values() if w.uid != pod.metadata.uid and not w.ending]
        tools, static = self._tools, self._workers[pod.metadata.uid or ""].static
        return (
            tools.managers.refuse_resize(pod)
            or hold_swap(pod, lambda container: may_swap(tools, pod, container, static=static))
            or hold(pod, others, tools.node.allocatable)
        )

    async def _share_cpu(self) -> None:
        """Keep the CPU shares of the burstable class at what its pods request, looking after pods came or went."""
        while True:
            await self._pods_changed.wait()
            self._pods_changed.clear()
            burstable = [w for w in self._workers.values() if not w.ending and qos.qos_class(w.pod) == qos.BURSTABLE]
            await self._tools.cgroups.share_burstable(sum(w.cpu_request for w in burstable))

    # -- the runtime --------------------------------------------------------------------------------------------------
    async def load(self) -> None:
        """Read what the runtime has, once at the start. Raise CRIError."""
        self._found = await self._tools.runtime.pods()

    async def run(self) -> None:
        """Follow the runtime and run workers until cancelled; containers are left as they are."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(cancellation.as_error(self._lifecycle_events.follow()), name="runtime events")
            group.create_task(cancellation.as_error(self._lifecycle_events.relist_forever()), name="runtime relist")
            if self._tools.config.cgroups_per_qos:
                group.create_task(cancellation.as_error(self._share_cpu()), name="CPU shares")
