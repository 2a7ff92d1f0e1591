"""Unprepares the claims of pods that are gone.

A driver may take its time for each pod, so each set of drivers has a task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from agent.container_manager.manager import SWEEP_SECONDS, ContainerManager
from agent.interfaces import PodView
from agent.keyed_tasks import KeyedTasks
from agent.managers.errors import DynamicResourceError
from kube.clock import Clock

log = logging.getLogger(__name__)


async def run(managers: ContainerManager, clock: Clock, views: Callable[[], Sequence[PodView]]) -> None:
    """Have claims of pods that are gone unprepared until cancelled; start it once all pods are known."""
    tasks = KeyedTasks()
    try:
        while True:
            claims = managers.claims
            if claims is not None:
                gone: dict[tuple[str, ...], list[str]] = {}
                uids = sorted(claims.owners - _uids(views()))
                for uid, drivers in claims.drivers_of(uids).items():
                    gone.setdefault(drivers, []).append(uid)
                for drivers, uids in gone.items():
                    tasks.begin(f"claims of {', '.join(drivers)}", partial(_unprepare_gone, managers, uids, views))
            await clock.sleep(SWEEP_SECONDS)
    finally:
        await tasks.close()


async def _unprepare_gone(
    managers: ContainerManager, uids: Sequence[str], views: Callable[[], Sequence[PodView]]
) -> None:
    for uid in uids:
        if managers.claims is None or uid in _uids(views()):
            continue
        try:
            await managers.claims.unprepare(uid)
        except DynamicResourceError as error:
            log.warning("claims of pod %s, which is gone: %s", uid, error)


def _uids(views: Sequence[PodView]) -> set[str]:
    return {view.pod.metadata.uid or "" for view in views}
