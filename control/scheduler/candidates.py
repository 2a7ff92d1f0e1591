"""Feasible nodes of a pod, and the results of filtering and scoring each for pods of its signature."""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

import msgspec

from control.scheduler.framework import Diagnosis, PreFilterState, Rejection, ScorePlugin
from control.scheduler.nodeinfo import NodeInfo

Scorer = tuple[ScorePlugin, int]
"""A score plugin and its weight."""


class NodeResult(msgspec.Struct, frozen=True):
    """Result of the node-local plugins for one state of a node."""

    generation: int
    rejection: Rejection | None
    fixed: int = 0
    """Weighted sum of the scores that are not normalized."""
    relative: tuple[int, ...] = ()
    """Raw scores that are normalized."""


class Candidates(msgspec.Struct):
    """The feasible nodes of a pod, with the results that scoring needs."""

    nodes: list[NodeInfo]
    results: list[NodeResult]
    states: list[tuple[PreFilterState, int]]
    relative: list[Scorer]
    diagnosis: Diagnosis
    sampled: bool = False
    """There are more nodes than were filtered."""

    @property
    def comparable(self) -> bool:
        """True if these are a sample of the nodes, and scores of single nodes that are not normalized alone decide."""
        return self.sampled and not self.states and not any(any(result.relative) for result in self.results)

    def keep(self, names: Container[str]) -> None:
        """Remove all nodes except these."""
        kept = [i for i, node in enumerate(self.nodes) if node.name in names]
        self.nodes, self.results = [self.nodes[i] for i in kept], [self.results[i] for i in kept]


class Choice(NamedTuple):
    """The feasible nodes of a pod and their scores, in the same order."""

    candidates: Candidates
    scores: list[int]
