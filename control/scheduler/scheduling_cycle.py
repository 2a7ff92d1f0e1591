"""The scheduling cycle: choose a node for one pod and count it there, or say why there is none and who might make room.

Synchronous but for what extenders are asked, so that decisions never see a half-made change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from control.scheduler import asking, preemption
from control.scheduler.budgets import Budgets
from control.scheduler.cluster import Cluster
from control.scheduler.decisions import Deferred, Failed, Placed, Served, unreserve
from control.scheduler.extender import NAME as EXTENDER
from control.scheduler.extender import Extender, ExtenderError
from control.scheduler.framework import (
    Act,
    BindingFailed,
    Diagnosis,
    PluginError,
    Unfinished,
    Unschedulable,
    fit_message,
)
from control.scheduler.podinfo import PodInfo, QueuedPod
from control.scheduler.queue import SchedulingQueue

log = logging.getLogger(__name__)
TRIES = 3
"""How often extenders are asked about one pod, where the cluster changes meanwhile."""


class SchedulingCycle:
    """Decides for pods out of the queue; `of` finds a pod's profile."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        budgets: Budgets,
        of: Callable[[PodInfo], Served],
    ) -> None:
        self._cluster, self._queue, self._budgets, self._of = cluster, queue, budgets, of

    def decide(self, queued: QueuedPod) -> Placed | Failed | Deferred:
        """Choose a node and count the pod there, or put it back; all in one go, so that nothing comes between.

        Where plugins have more to work out than the event loop may be blocked for, nothing is done yet.
        """
        info, served = queued.info, self._of(queued.info)
        try:
            try:
                found: Placed | Failed = self._assume(queued, served, served.algorithm.place(info))
            except Unschedulable as refusal:
                victims, why = self._room(served, info, refusal.diagnosis)
                found = self._refuse(queued, refusal.diagnosis, victims, why)
        except Unfinished as more:
            return Deferred(more.go_on)
        except Exception as error:
            found = self.failed(queued, error)
        info.cycle_state.clear()
        return found

    async def decide_with(self, extenders: Sequence[Extender], queued: QueuedPod) -> Placed | Failed | Deferred:
        """Choose a node as extenders have it. The cluster may change while they are asked, so the node is checked again."""
        info, served = queued.info, self._of(queued.info)
        try:
            try:
                found: Placed | Failed = self._assume(queued, served, await self._asked(extenders, served, info))
            except Unschedulable as refusal:
                victims, why = await self._room_with(extenders, served, info, refusal.diagnosis)
                found = self._refuse(queued, refusal.diagnosis, victims, why)
        except Unfinished as more:
            return Deferred(more.go_on)
        except Exception as error:
            found = self.failed(queued, error)
        info.cycle_state.clear()
        return found

    async def _asked(self, extenders: Sequence[Extender], served: Served, info: PodInfo) -> str:
        for _ in range(TRIES):
            node = await asking.place(info, served.algorithm, extenders)
            found = self._cluster.nodes.get(node)
            if found is not None and served.algorithm.fits_with_all(info, found):
                return node
        raise ExtenderError("the node that was chosen no longer fits")

    def _assume(self, queued: QueuedPod, served: Served, node: str) -> Placed:
        info = queued.info
        for plugin in served.profile.reserve:
            try:
                plugin.reserve(info, self._cluster.nodes[node].node)
            except BaseException:
                unreserve(served.profile, info)
                raise
        self._cluster.withdraw(info.key)
        self._cluster.assume(info, node)
        self._queue.done(queued)
        return Placed(node)

    def failed(self, queued: QueuedPod, error: Exception) -> Failed:
        """Put a pod back whose attempt failed for another reason than lack of a node."""
        queued.info.cycle_state.clear()
        if isinstance(error, ExtenderError | BindingFailed | PluginError):
            log.warning("scheduling %s: %s", queued.key, error)
        else:
            log.error("scheduling %s failed", queued.key, exc_info=error)
        self._queue.failed(queued, frozenset(), error=True)
        return Failed("SchedulerError", str(error))

    def _room(self, served: Served, info: PodInfo, diagnosis: Diagnosis) -> tuple[preemption.Victims | None, str]:
        """Return whose eviction would make room, or why there is nobody."""
        if not served.profile.preempts or not diagnosis.nodes:
            return None, ""
        why = preemption.not_eligible(info, self._cluster)
        if why:
            return None, why
        victims = preemption.find(info, diagnosis, served.algorithm, self._cluster, self._budgets)
        return victims, "" if victims else preemption.explain(diagnosis)

    async def _room_with(
        self, extenders: Sequence[Extender], served: Served, info: PodInfo, diagnosis: Diagnosis
    ) -> tuple[preemption.Victims | None, str]:
        """The same, where extenders have a say in it."""
        if not any(extender.config.preempt_verb for extender in extenders):
            return self._room(served, info, diagnosis)
        if not served.profile.preempts or not diagnosis.nodes:
            return None, ""
        why = preemption.not_eligible(info, self._cluster)
        if why:
            return None, why
        found = preemption.candidates(info, diagnosis, served.algorithm, self._cluster, self._budgets)
        try:
            victims = preemption.best(await asking.agreed(info, found, extenders))
        except ExtenderError as error:
            return None, str(error)
        return victims, "" if victims else preemption.explain(diagnosis)

    def _refuse(self, queued: QueuedPod, diagnosis: Diagnosis, victims: preemption.Victims | None, why: str) -> Failed:
        message, info = fit_message(diagnosis), queued.info
        hopeless = bool(why) and not why.startswith(preemption.NOT_ELIGIBLE)
        displaced: tuple[PodInfo, ...] = ()
        said, acts = self._post_filter(info)
        if victims is not None:
            nominated = self._cluster.nominated.get(victims.node, {})
            displaced = tuple(p for p in nominated.values() if p.priority < info.priority)
            for other in displaced:
                self._cluster.withdraw(other.key)
            self._cluster.nominate(info, victims.node)
        else:
            said += [f"preemption: {why}"] if why else []
            message += f" {', '.join(said)}" if said and diagnosis.nodes else ""
        if hopeless:
            self._cluster.withdraw(info.key)
        # What an extender has said may change without any sign of it here: every change is worth a try.
        plugins = diagnosis.plugins
        passing = any(rejection.passing for rejection in diagnosis.rejections.values())
        self._queue.failed(queued, frozenset() if EXTENDER in plugins else plugins, error=passing)
        return Failed("Unschedulable", message, victims, hopeless, displaced, tuple(acts))

    def _post_filter(self, info: PodInfo) -> tuple[list[str], list[Act]]:
        """Return what plugins say of a pod that fits nowhere, and what they want done."""
        said, acts = [], []
        for plugin in self._of(info).profile.post_filter:
            text, act = plugin.post_filter(info, self._cluster.order)
            said += [text] if text else []
            acts += [act] if act is not None else []
        return said, acts
