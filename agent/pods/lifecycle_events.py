"""Passes the runtime's events on to the pods' workers, and relists the runtime slowly for what they missed.

Upstream calls this the pod lifecycle event generator (PLEG), with the relist as the rule and events as the option. A stream
that breaks is dialled again, and a relist finds what happened meanwhile; a runtime without events is relisted only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from agent.pods.dependencies import PodDependencies
from agent.pods.worker import PodWorker
from agent.runtime import RuntimePod
from agent.runtime_records import PodRuntime
from cri.errors import CRIError, UnimplementedError
from cri.events import Kind
from kube import duration
from kube.clock import Clock

log = logging.getLogger(__name__)

REDIAL_SECONDS = 0.2
RELIST_SECONDS = 5.0
"""Between relists of a runtime that has no event stream of any kind."""
HEALTHY_SECONDS = 180.0
"""Seconds without a successful relist after which the node is not ready (upstream's relistThreshold)."""


class RelistHealth:
    """True if the runtime is relisted in time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._overdue_since: float | None = None

    def started(self) -> None:
        if self._overdue_since is None:
            self._overdue_since = self._clock.monotonic()

    def succeeded(self) -> None:
        self._overdue_since = None

    def problem(self) -> str:
        """Return why the relist is unhealthy, "" where it is healthy; for the node's condition."""
        since = self._overdue_since
        seconds = self._clock.monotonic() - since if since is not None else 0.0
        if seconds < HEALTHY_SECONDS:
            return ""
        ago = f"{duration.render(int(seconds))} ago; threshold is {duration.render(HEALTHY_SECONDS)}"
        return f"PLEG is not healthy: pleg was last seen active {ago}"


class LifecycleEvents:
    """Follows the runtime for `workers`, by pod UID; `unknown` is called with what the runtime has of other pods."""

    def __init__(
        self,
        deps: PodDependencies,
        workers: Mapping[str, PodWorker],
        unknown: Callable[[RuntimePod], None],
        health: RelistHealth,
    ) -> None:
        self._deps, self._workers, self._unknown = deps, workers, unknown
        self._health = health

    async def follow(self) -> None:
        """Follow the runtime's events until cancelled."""
        deps = self._deps
        while True:
            try:
                async for event in deps.runtime.client.events(settled=False):
                    if event.kind is Kind.SUBSCRIBED:
                        await self._relist()  # what happened while the stream was down
                    elif event.kind in (Kind.STOPPED, Kind.DELETED):
                        self._container_changed(event.container_id)
            except UnimplementedError:
                await self._relist()
                await deps.clock.sleep(RELIST_SECONDS)
            except CRIError as error:
                log.info("runtime events: %s", error)
            await deps.clock.sleep(REDIAL_SECONDS)

    def _container_changed(self, container_id: str) -> None:
        for worker in self._workers.values():
            runtime = worker.state.runtime
            if runtime.find(container_id) or any(s.id == container_id for s in runtime.sandboxes):
                worker.container_changed(container_id)
                return

    async def relist_forever(self) -> None:
        """Relist each sync period until cancelled."""
        while True:
            await self._deps.clock.sleep(self._deps.config.sync_period)
            await self._relist()

    async def _relist(self) -> None:
        """Compare the workers' records with a listing of the runtime: it repairs missed events."""
        before = {uid: worker.state.runtime for uid, worker in self._workers.items()}
        metrics, began = self._deps.metrics, self._deps.now()
        if last := metrics.relist_seen.value():
            metrics.relist_interval.observe(began - last)
        self._health.started()
        try:
            found = await self._deps.runtime.pods(before)
        except CRIError as error:
            log.info("listing the runtime: %s", error)
            return
        metrics.relist_seconds.observe(self._deps.now() - began)
        metrics.relist_seen.set(began)
        self._health.succeeded()
        for uid, worker in list(self._workers.items()):
            # Only where nothing moved meanwhile: a listing is older than a call's own return.
            if before.get(uid) is worker.state.runtime:
                worker.replace_runtime(found[uid].runtime if uid in found else PodRuntime())
        for uid, other in found.items():
            if uid not in self._workers and uid not in before:
                self._unknown(other)
