"""Placement with extenders: filters of the plugins first, then each extender in order; then the scores of both are added."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from control.scheduler.algorithm import Algorithm
from control.scheduler.extender import Extender, ExtenderError
from control.scheduler.framework import Unschedulable
from control.scheduler.podinfo import PodInfo
from control.scheduler.victims import Victims

log = logging.getLogger(__name__)


async def place(pod: PodInfo, algorithm: Algorithm, extenders: Sequence[Extender]) -> str:
    """Return the name of the best node; raises Unschedulable if none fits, ExtenderError."""
    candidates = algorithm.feasible(pod)
    for extender in extenders:
        try:
            candidates.keep(await extender.filter(pod, candidates.nodes, candidates.diagnosis))
        except ExtenderError as error:
            if not extender.config.ignorable:
                raise
            log.warning("ignoring an extender: %s", error)
        if not candidates.nodes:
            raise Unschedulable(candidates.diagnosis)
    points: dict[str, int] = {}
    if len(candidates.nodes) > 1:
        for extender in extenders:
            try:
                scores = await extender.prioritize(pod, candidates.nodes)
            except ExtenderError as error:  # a failed score is no reason to fail
                log.warning("an extender does not score: %s", error)
                continue
            for name, score in scores.items():
                points[name] = points.get(name, 0) + score
    return algorithm.choose(candidates, points)


async def victims_agreed(pod: PodInfo, candidates: Sequence[Victims], extenders: Sequence[Extender]) -> list[Victims]:
    """Return the victims that all extenders agree with; raises ExtenderError."""
    left = list(candidates)
    for extender in extenders:
        if not left:
            break
        try:
            left = await extender.preempt(pod, left)
        except ExtenderError as error:
            if not extender.config.ignorable:
                raise
            log.warning("ignoring an extender: %s", error)
    return left
