"""The scheduling cycle: selects a node for one pod and assumes it there, or returns the reason and possible victims.

Synchronous but for what extenders are asked, so that decisions never see a half-made change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from control.scheduler import attempts, extender_calls, metrics, preemption
from control.scheduler.budgets import Budgets
from control.scheduler.cluster import Cluster
from control.scheduler.decisions import Deferred, Failed, Placed, ProfileScheduler, unreserve
from control.scheduler.extender import NAME as EXTENDER
from control.scheduler.extender import Extender, ExtenderError
from control.scheduler.framework import (
    BindingFailed,
    Diagnosis,
    PluginError,
    PostFilterAction,
    Unschedulable,
    fit_message,
)
from control.scheduler.podinfo import PodInfo
from control.scheduler.queue import SchedulingQueue
from control.scheduler.queued_pod import QueuedPod
from control.scheduler.unfinished import Unfinished
from control.scheduler.victims import Victims
from kube.clock import Clock
from kube.journal import Journal

log = logging.getLogger(__name__)
TRIES = 3
"""Maximum number of calls to extenders for one pod, if the cluster changes meanwhile."""


class SchedulingCycle:
    """Decides for pods out of the queue; `of` finds a pod's profile."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        budgets: Budgets,
        of: Callable[[PodInfo], ProfileScheduler],
        clock: Clock,
        journal: Journal | None = None,
    ) -> None:
        self._cluster, self._queue, self._budgets, self._of, self._clock = cluster, queue, budgets, of, clock
        self._journal, self._placements = journal, attempts.Placements(journal, clock)

    def decide(self, queued: QueuedPod) -> Placed | Failed | Deferred:
        """Choose a node and count the pod there, or put it back; all in one go, so that nothing comes between.

        Where plugins have more to work out than the event loop may be blocked for, nothing is done yet.
        """
        info, served = queued.info, self._of(queued.info)
        try:
            try:
                began = time.perf_counter()
                node = served.algorithm.place(info)
                metrics.ALGORITHM_SECONDS.observe(time.perf_counter() - began)
                found: Placed | Failed = self._assume(queued, served, node)
            except Unschedulable as refusal:
                victims, why = self._find_victims(served, info, refusal.diagnosis)
                found = self._nominate_or_requeue(queued, refusal.diagnosis, victims, why)
        except Unfinished as more:
            return Deferred(more.go_on)
        except Exception as error:
            found = self.failed(queued, error)
        info.cycle_state.clear()
        return found

    async def decide_with(self, extenders: Sequence[Extender], queued: QueuedPod) -> Placed | Failed | Deferred:
        """Select a node with extenders. The cluster may change during their calls, so the node is checked again."""
        info, served = queued.info, self._of(queued.info)
        try:
            try:
                found: Placed | Failed = self._assume(queued, served, await self._place_with(extenders, served, info))
            except Unschedulable as refusal:
                victims, why = await self._find_victims_with(extenders, served, info, refusal.diagnosis)
                found = self._nominate_or_requeue(queued, refusal.diagnosis, victims, why)
        except Unfinished as more:
            return Deferred(more.go_on)
        except Exception as error:
            found = self.failed(queued, error)
        info.cycle_state.clear()
        return found

    async def _place_with(self, extenders: Sequence[Extender], served: ProfileScheduler, info: PodInfo) -> str:
        for _ in range(TRIES):
            node = await extender_calls.place(info, served.algorithm, extenders)
            found = self._cluster.nodes.get(node)
            if found is not None and served.algorithm.fits_with_all(info, found):
                return node
        raise ExtenderError("the node that was chosen no longer fits")

    def _assume(self, queued: QueuedPod, served: ProfileScheduler, node: str) -> Placed:
        info, began = queued.info, time.perf_counter()
        for plugin in served.profile.reserve:
            try:
                plugin.reserve(info, self._cluster.nodes[node].node)
            except BaseException:
                unreserve(served.profile, info)
                raise
        metrics.EXTENSION_POINT_SECONDS.observe(
            "Reserve", metrics.SUCCESS, served.profile.name, time.perf_counter() - began
        )
        self._cluster.nominations.withdraw(info.key)
        self._cluster.assume(info, node)
        self._queue.done(queued)
        self._placements.placed(served.profile.name, queued, node, served.algorithm.choice)
        return Placed(node)

    def failed(self, queued: QueuedPod, error: Exception) -> Failed:
        """Put a pod back whose attempt failed for another reason than lack of a node."""
        queued.info.cycle_state.clear()
        if isinstance(error, ExtenderError | BindingFailed | PluginError):
            log.warning("scheduling %s: %s", queued.key, error)
        else:
            log.error("scheduling %s failed", queued.key, exc_info=error)
        metrics.attempted("error", self._profile(queued.info), queued, self._clock.monotonic())
        self._queue.failed(queued, frozenset(), error=True)
        return Failed("SchedulerError", str(error))

    def _profile(self, info: PodInfo) -> str:
        return self._of(info).profile.name

    def _not_preempting(self, served: ProfileScheduler, info: PodInfo, diagnosis: Diagnosis) -> str | None:
        """Return why the pod preempts nobody, or None; raises PluginError while disruption budgets are not listed."""
        if not served.profile.preempts or not diagnosis.nodes:
            return ""
        if why := preemption.not_eligible(info, self._cluster):
            return why
        self._budgets.check_listed()
        return None

    def _find_victims(
        self, served: ProfileScheduler, info: PodInfo, diagnosis: Diagnosis
    ) -> tuple[Victims | None, str]:
        """Return the victims whose eviction would make the pod schedulable, or the reason for none."""
        if (why := self._not_preempting(served, info, diagnosis)) is not None:
            return None, why
        began = time.perf_counter()
        victims = preemption.find(info, diagnosis, served.algorithm, self._cluster, self._budgets)
        status = metrics.SUCCESS if victims else metrics.UNSCHEDULABLE
        metrics.EXTENSION_POINT_SECONDS.observe("PostFilter", status, served.profile.name, time.perf_counter() - began)
        return victims, "" if victims else preemption.explain(diagnosis)

    async def _find_victims_with(
        self, extenders: Sequence[Extender], served: ProfileScheduler, info: PodInfo, diagnosis: Diagnosis
    ) -> tuple[Victims | None, str]:
        """The same with extenders."""
        if not any(extender.config.preempt_verb for extender in extenders):
            return self._find_victims(served, info, diagnosis)
        if (why := self._not_preempting(served, info, diagnosis)) is not None:
            return None, why
        search = preemption.finished_search(info, diagnosis, served.algorithm, self._cluster, self._budgets)
        try:
            agreed = await extender_calls.victims_agreed(info, search.found, extenders)
            search.interrupted = True
            victims = preemption.choose_victims(search, agreed)
        except ExtenderError as error:
            return None, str(error)
        return victims, "" if victims else preemption.explain(diagnosis)

    def _nominate_or_requeue(
        self, queued: QueuedPod, diagnosis: Diagnosis, victims: Victims | None, why: str
    ) -> Failed:
        """Requeue a pod that fits nowhere, and nominate it for the node of its victims, if there are any.

        The nominations of less important pods for that node are withdrawn. A pod that no preemption can help loses its own.
        """
        message, info = fit_message(diagnosis), queued.info
        hopeless = bool(why) and not why.startswith(preemption.NOT_ELIGIBLE)
        displaced: tuple[PodInfo, ...] = ()
        messages, actions = self._post_filter(info)
        if victims is not None:
            nominated = self._cluster.nominations.by_node.get(victims.node, {})
            displaced = tuple(p for p in nominated.values() if p.priority < info.priority)
            for other in displaced:
                self._cluster.nominations.withdraw(other.key)
            self._cluster.nominations.add(info, victims.node)
        else:
            messages += [f"preemption: {why}"] if why else []
            message += f" {', '.join(messages)}" if messages and diagnosis.nodes else ""
        if hopeless:
            self._cluster.nominations.withdraw(info.key)
        profile = self._of(info).profile
        if profile.preempts and diagnosis.nodes:
            metrics.PREEMPTION_ATTEMPTS.add()
        if victims is not None:
            metrics.PREEMPTION_VICTIMS.observe(len(victims.pods))
        metrics.attempted("unschedulable", profile.name, queued, self._clock.monotonic())
        if self._journal is not None:
            attempts.unschedulable(self._journal, profile.name, queued, diagnosis, message)
        # An extender's answer may change without any sign of it here: every change is worth a try.
        plugins = diagnosis.plugins
        temporary = any(rejection.temporary for rejection in diagnosis.rejections.values())
        rejected_by = frozenset[str]() if EXTENDER in plugins else plugins
        self._queue.failed(queued, rejected_by, error=temporary, nominated=self._cluster.nominations.has(info.key))
        return Failed("Unschedulable", message, victims, hopeless, displaced, tuple(actions))

    def _post_filter(self, info: PodInfo) -> tuple[list[str], list[PostFilterAction]]:
        """Return the messages and actions of PostFilter plugins for an unschedulable pod."""
        messages, actions = [], []
        for plugin in self._of(info).profile.post_filter:
            text, action = plugin.post_filter(info, self._cluster.order)
            messages += [text] if text else []
            actions += [action] if action is not None else []
        return messages, actions
