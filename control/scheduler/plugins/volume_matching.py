"""Matching volumes for a pod's unbound claims on a node: sorted once for each pod, then looked up by the node's labels.

The rule is that of the controllers' persistent_volumes/matching.py: the volume whose claimRef names the claim, else the
smallest that fits. Here it is applied to all claims of a pod and many nodes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from control.scheduler.node_selection import NodeTerms
from control.scheduler.node_selection import is_large as has_many_terms
from control.scheduler.steps import Steps
from kube.api import core_v1, meta_v1
from kube.informer import Change
from kube.object_names import key_of
from kube.selectors import LabelSelector, from_label_selector
from kube.volume_binding import class_of, meant_for, node_fits, other_attributes_class, other_mode, size_of, wanted_size

Claim = core_v1.PersistentVolumeClaim
Volume = core_v1.PersistentVolume
Label = tuple[str, str]
MOST_LABELS = 16
"""Maximum number of node labels that one volume is indexed by."""
LARGE = 256
"""Labels, expressions and values of a claim's selector up to which it is compiled on the event loop."""
_NAME = ":name"
"""Key of the node's name in the index; no label key contains a colon."""


def is_large(selector: meta_v1.LabelSelector) -> bool:
    """Return whether compiling a selector takes a millisecond or more."""
    terms = len(selector.match_labels) + len(selector.match_expressions)
    return terms > LARGE or terms + sum(len(each.values) for each in selector.match_expressions) > LARGE


class VolumeAffinity:
    """Node affinity of a volume: the nodes that can use it."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
        self.terms = required.node_selector_terms if required is not None else None
        self._many = NodeTerms(self.terms) if self.terms is not None and has_many_terms(self.terms) else None

    def includes(self, node: core_v1.Node) -> bool:
        return self._many.matching(node) != 0 if self._many is not None else node_fits(self.volume, node)

    @cached_property
    def labels(self) -> set[Label] | None:
        """Labels of which a node must have one to use the volume; None if the affinity does not name a few."""
        found: set[Label] = set()
        for term in self.terms or ():
            labels = [[(r.key, v) for v in r.values] for r in term.match_expressions if r.operator == "In"]
            labels += [[(_NAME, v) for v in r.values] for r in term.match_fields if r.operator == "In"]
            if not labels:
                return None
            fewest = min(len(label) for label in labels)
            found.update(next(label for label in labels if len(label) == fewest))
        return found if self.terms is not None and len(found) <= MOST_LABELS else None


class VolumeAffinities:
    """Node affinities of volumes, cached until the volume changes."""

    def __init__(self) -> None:
        self._known: dict[str, VolumeAffinity] = {}

    def changed(self, change: Change[Volume]) -> None:
        self._known.pop(change.key, None)

    def of(self, volume: Volume) -> VolumeAffinity:
        name = volume.metadata.name or ""
        known = self._known.get(name)
        if known is None or known.volume is not volume:
            known = self._known[name] = VolumeAffinity(volume)
        return known


class VolumeMatcher:
    """Matches volumes to claims; `taken` returns whether a volume is reserved for another pod. Raises OutOfSteps."""

    def __init__(
        self,
        claims: Sequence[Claim],
        volumes: Sequence[Volume],
        affinities: VolumeAffinities,
        taken: Callable[[str], bool],
        steps: Steps,
        compiled: Mapping[str, LabelSelector] | None = None,
    ) -> None:
        """`compiled` contains selectors of claims by key; others are compiled here."""
        self._claims, self._affinities, self._taken, self._steps = claims, affinities, taken, steps
        self._compiled = compiled or {}
        steps.take(len(volumes))
        self._named: dict[str, list[Volume]] = {}
        free: dict[str, list[Volume]] = {}
        for volume in volumes:
            if volume.metadata.deletion_timestamp is not None:
                continue
            if (ref := volume.spec.claim_ref) is not None:
                self._named.setdefault(f"{ref.namespace}/{ref.name}", []).append(volume)
            elif volume.status.phase in ("Available", None):
                free.setdefault(class_of(volume), []).append(volume)
        self._pools: dict[bytes, _Pool] = {}
        self._pool_of = [self._pool(claim, free.get(class_of(claim), [])) for claim in claims]

    def _pool(self, claim: Claim, free: Sequence[Volume]) -> _Pool:
        """Return the volumes for claims that differ only in their size."""
        spec = claim.spec
        classes = class_of(claim), spec.volume_attributes_class_name
        kind = msgspec.json.encode((*classes, spec.volume_mode, spec.access_modes, spec.selector))
        if kind not in self._pools:
            self._steps.take(len(free))
            selector = self._compiled.get(key_of(claim))
            if selector is None and claim.spec.selector is not None:
                selector = from_label_selector(claim.spec.selector)
            self._pools[kind] = _Pool(claim, free, self._affinities, selector, self._steps)
        return self._pools[kind]

    def on(self, node: core_v1.Node) -> dict[str, str]:
        """Return the volumes for the claims, by their keys, on a node; "" for a claim without one."""
        chosen: dict[str, str] = {}
        taken: set[str] = set()
        for claim, pool in zip(self._claims, self._pool_of, strict=True):
            found = self._own(claim, node) or self._free(claim, pool, node, taken)
            chosen[key_of(claim)] = found
            taken.add(found)
        return chosen

    def _own(self, claim: Claim, node: core_v1.Node) -> str:
        for volume in self._named.get(key_of(claim), ()):
            self._steps.take()
            large = size_of(volume) >= wanted_size(claim)
            if (
                large
                and meant_for(volume, claim)
                and not other_mode(volume, claim)
                and not other_attributes_class(volume, claim)
                and self._affinities.of(volume).includes(node)
            ):
                return volume.metadata.name or ""
        return ""

    def _free(self, claim: Claim, pool: _Pool, node: core_v1.Node, taken: set[str]) -> str:
        for volume in pool.near(node, wanted_size(claim)):
            self._steps.take()
            name = volume.metadata.name or ""
            if name not in taken and not self._taken(name) and self._affinities.of(volume).includes(node):
                return name
        return ""


class _Pool:
    """Volumes that fit a claim except for their size, the smallest first."""

    def __init__(
        self,
        claim: Claim,
        free: Sequence[Volume],
        affinities: VolumeAffinities,
        selector: LabelSelector | None,
        steps: Steps,
    ) -> None:
        modes = set(claim.spec.access_modes)
        fitting = [
            (size_of(volume), volume)
            for volume in free
            if not other_mode(volume, claim)
            and not other_attributes_class(volume, claim)
            and modes <= set(volume.spec.access_modes)
        ]
        if selector is not None:
            steps.take(sum(selector.cost(volume.metadata.labels) for _, volume in fitting))
            fitting = [pair for pair in fitting if selector.matches(pair[1].metadata.labels)]
        fitting.sort(key=lambda pair: pair[0])
        self._sizes, self._volumes = [size for size, _ in fitting], [volume for _, volume in fitting]
        self._anywhere: list[int] = []
        self._at: dict[Label, list[int]] = {}
        for rank, volume in enumerate(self._volumes):
            labels = affinities.of(volume).labels
            if labels is None:
                self._anywhere.append(rank)
            for label in labels or ():
                self._at.setdefault(label, []).append(rank)

    def near(self, node: core_v1.Node, size: int) -> Iterator[Volume]:
        """Yield the volumes of at least a size that the node may be able to use, the smallest first."""
        least = bisect_left(self._sizes, size)
        labels: Mapping[str, str] = {**node.metadata.labels, _NAME: node.metadata.name or ""}
        known = [self._anywhere, *(self._at[label] for label in labels.items() if label in self._at)]
        for rank in heapq.merge(*(_from(ranks, bisect_left(ranks, least)) for ranks in known)):
            yield self._volumes[rank]


def _from(ranks: Sequence[int], start: int) -> Iterator[int]:
    return (ranks[position] for position in range(start, len(ranks)))
