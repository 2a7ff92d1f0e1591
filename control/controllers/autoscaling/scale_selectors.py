"""Compiled selectors of the scales of autoscalers, shared by all autoscalers of a namespace that have the same one.

An autoscaler of 300 bytes may name a Deployment whose selector has 64 KiB, which compiled takes 2 MB: each distinct selector is
kept once, found by a digest of its text, while any autoscaler has it. Those of one namespace have a budget together, so
that no namespace takes the controllers' memory: above it an autoscaler reports that its selector cannot be used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from control.controllers.selector_index import SelectorIndex
from control.event_loop import offload
from kube.selectors import LabelSelector, SelectorError, parse_labels

MOST_OF_A_NAMESPACE = 2 << 20
"""Bytes of the distinct selectors of a namespace's autoscalers, as of the queries of one user's watches."""
TERM = 16
"""Bytes that a term counts for in addition to its text."""
_Place = tuple[str, bytes]
"""A namespace, and the digest of a selector."""


class TooManySelectors(SelectorError):
    """The autoscalers of a namespace have more than MOST_OF_A_NAMESPACE bytes of selectors."""


@dataclass(slots=True)
class _Shared:
    selector: LabelSelector
    size: int
    keys: set[str] = field(default_factory=set)


class ScaleSelectors:
    """Selectors by the keys of autoscalers."""

    def __init__(self) -> None:
        self._shared: dict[_Place, _Shared] = {}
        self._places: dict[str, _Place] = {}
        self._sizes: dict[str, int] = {}
        """Bytes of the selectors of each namespace."""
        self._index = SelectorIndex()

    async def of(self, key: str, namespace: str, text: str) -> LabelSelector:
        """Return the compiled selector of an autoscaler's scale. Raises SelectorError."""
        place = namespace, hashlib.sha256(text.encode(errors="replace")).digest()
        if self._places.get(key) == place:
            return self._shared[place].selector
        self.drop(key)
        if place not in self._shared:
            size = len(text) + TERM * text.count(",")
            self._check(namespace, size)
            selector = await offload.run(namespace, len(text), _compiled, text)
            if place not in self._shared:  # another autoscaler may have compiled the same meanwhile
                self._check(namespace, size)
                self._shared[place] = _Shared(selector, size)
                self._sizes[namespace] = self._sizes.get(namespace, 0) + size
        shared = self._shared[place]
        shared.keys.add(key)
        self._places[key] = place
        self._index.put(key, namespace, shared.selector)
        return shared.selector

    def get(self, key: str) -> LabelSelector | None:
        """Return the selector that an autoscaler's scale had when it was last requested."""
        return self._index.get(key)

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Return the keys of the autoscalers whose selectors may match labels."""
        return self._index.candidates(namespace, labels)

    def drop(self, key: str) -> None:
        """Forget an autoscaler's selector, and the compiled one with the last that has it."""
        place = self._places.pop(key, None)
        if place is None:
            return
        self._index.drop(key)
        shared = self._shared[place]
        shared.keys.discard(key)
        if not shared.keys:
            del self._shared[place]
            self._sizes[place[0]] -= shared.size
            if not self._sizes[place[0]]:
                del self._sizes[place[0]]

    def _check(self, namespace: str, size: int) -> None:
        if self._sizes.get(namespace, 0) + size > MOST_OF_A_NAMESPACE:
            raise TooManySelectors(
                f"the selectors of the namespace's autoscalers have more than {MOST_OF_A_NAMESPACE} bytes together"
            )


def _compiled(text: str) -> LabelSelector:
    selector = parse_labels(text)
    selector.prepare()
    return selector
