"""Finds the workloads, budgets or autoscalers that select a pod: selectors are compiled once, and indexed by a required label.

A selector of 1 MiB takes a second to compile, and pods change often. Kept are the selectors of the objects that the informer
holds, and no others. A large one is compiled outside the event loop, when its controller looks at it; and to compare such a one
with as many labels is not done at once where a handler asks, but in steps.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from control.controllers.step_counter import STEPS_PER_ITERATION, StepCounter, selects
from control.event_loop import offload
from kube.informer import Change, Informer
from kube.object_names import key_of, metadata_of, namespace_of
from kube.selectors import NOTHING, LabelSelector, SelectorError, from_label_selector, from_map

T = TypeVar("T", bound=msgspec.Struct)
_Pair = tuple[str, str]
"""A label's key and value; both are "" for selectors that demand no label."""
Act = Callable[[str], object]
"""Called with the key of an object."""
MOST_DEMANDED = 64
"""Requirements of one selector among which a label is looked for that it demands."""
LARGE = 256
"""Labels, expressions and values of a selector from which on it takes a millisecond and more to compile."""
MOST_LATER = 64
"""Comparisons with one pod's labels that wait for their turn: they keep the labels. Beyond it whoever may select them acts."""


def compiled(source: Any) -> LabelSelector:
    """Compile an object's spec.selector: a LabelSelector, or the map of a ReplicationController. Raises SelectorError."""
    return from_map(source) if isinstance(source, dict) else from_label_selector(source)


def of_spec(obj: Any) -> Any:
    """Return spec.selector."""
    return obj.spec.selector


def _is_large(source: Any) -> bool:
    if source is None or isinstance(source, dict):
        return len(source or ()) > LARGE
    number = len(source.match_labels) + len(source.match_expressions)
    return number > LARGE or number + sum(len(each.values) for each in source.match_expressions) > LARGE


def _prepared(source: Any) -> LabelSelector:
    selector = compiled(source)
    selector.prepare()
    return selector


class SelectorIndex:
    """Compiled selectors by key, each found by one label that it demands; None stands for one that is not compiled yet."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[str, _Pair] | None, LabelSelector | None]] = {}
        self._at: dict[str, dict[_Pair, dict[str, None]]] = {}
        """Keys by namespace, and by the label that is demanded."""

    def get(self, key: str) -> LabelSelector | None:
        known = self._known.get(key)
        return known[1] if known is not None else None

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def put(self, key: str, namespace: str, selector: LabelSelector | None) -> None:
        """Keep a selector in place of the one that the key has, under the label that fewest others are kept under."""
        self.drop(key)
        place: tuple[str, _Pair] | None = None
        if selector is None or not selector.nothing:
            here = self._at.setdefault(namespace, {})
            pairs = _demanded(selector) if selector is not None else ()
            pair = min(pairs, key=lambda pair: len(here.get(pair, ())), default=("", ""))
            here.setdefault(pair, {})[key] = None
            place = namespace, pair
        self._known[key] = place, selector

    def drop(self, key: str) -> None:
        place, _ = self._known.pop(key, (None, NOTHING))
        if place is not None:
            namespace, pair = place
            here = self._at[namespace]
            del here[pair][key]
            if not here[pair]:
                del here[pair]
            if not here:
                del self._at[namespace]

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Return the keys of the namespace's selectors that demand none of the labels, or one that is among them."""
        here = self._at.get(namespace)
        if here is None:
            return []
        found = list(here.get(("", ""), ()))
        few = len(labels) <= MOST_DEMANDED
        for pair in labels.items() if few else sorted(labels.items() & here.keys()):
            found += here.get(pair, ())
        return found


class CompiledSelectorIndex(Generic[T]):
    """The selectors of an informer's objects. `source` returns an object's selector as it is written."""

    def __init__(self, informer: Informer[T], source: Callable[[Any], Any] = of_spec) -> None:
        self._source = source
        self._written: dict[str, Any] = {}
        self._index = SelectorIndex()
        self._later: deque[tuple[Mapping[str, str], Act, Sequence[str]]] = deque()
        self._comparing: asyncio.Task[None] | None = None
        informer.subscribe(self._changed)

    async def of(self, obj: T) -> LabelSelector:
        """Return the selector of an object. Raises SelectorError."""
        source, key = self._source(obj), key_of(obj)
        known, written = self._index.get(key), self._written.get(key)
        if known is not None and known is not NOTHING and (written is source or written == source):
            return known
        return await self._compiled(key, namespace_of(obj), source) if _is_large(source) else compiled(source)

    async def _compiled(self, key: str, namespace: str, source: Any) -> LabelSelector:
        """Compile a large selector, and keep it where it is still its object's."""
        selector = await offload.complete(namespace, _prepared, source)
        written = self._written.get(key)
        if key in self._index and (written is source or written == source):
            self._index.put(key, namespace, selector)
        return selector

    async def matching(self, namespace: str, labels: Mapping[str, str]) -> list[str]:
        """Return the keys of the namespace's objects that select these labels."""
        found, counter = list[str](), StepCounter()
        for key in self._index.candidates(namespace, labels):
            selector = self._index.get(key)
            if selector is None and key in self._index:
                try:
                    selector = await self._compiled(key, namespace, self._written[key])
                except SelectorError:
                    continue
            if selector is not None and await selects(selector, labels, counter):
                found.append(key)
        return found

    def each(self, namespace: str, labels: Mapping[str, str], act: Act) -> None:
        """Call `act` for the namespace's objects that select these labels.

        Long comparisons are done later by a task, in steps. `act` is called as well for an object whose selector is not
        compiled yet, and for any that may select them where many comparisons wait: so it requests nothing but another look.
        """
        steps, keys = 0, self._index.candidates(namespace, labels)
        for number, key in enumerate(keys):
            selector = self._index.get(key)
            if selector is None:
                act(key)
                continue
            steps += selector.cost(labels)
            if steps > STEPS_PER_ITERATION:
                self._compare_later(labels, act, keys[number:])
                return
            if selector.matches(labels):
                act(key)

    def _compare_later(self, labels: Mapping[str, str], act: Act, keys: Sequence[str]) -> None:
        if len(self._later) >= MOST_LATER:
            for key in keys:
                act(key)
            return
        self._later.append((labels, act, keys))
        if self._comparing is None:
            self._comparing = asyncio.get_running_loop().create_task(self._compare(), name="comparing selectors")

    async def _compare(self) -> None:
        counter = StepCounter()
        try:
            while self._later:
                labels, act, keys = self._later.popleft()
                for key in keys:
                    selector = self._index.get(key)
                    if selector is None or await selects(selector, labels, counter):
                        act(key)
        finally:
            self._comparing = None

    def _changed(self, change: Change[Any]) -> None:
        key, source = change.key, self._source(change.new)
        if change.type == "DELETED":
            self._index.drop(key)
            self._written.pop(key, None)
        elif key not in self._written or self._written[key] != source:
            self._written[key] = source
            selector = None if _is_large(source) else _readable(source)
            self._index.put(key, metadata_of(change.new).namespace or "", selector)


def _readable(source: Any) -> LabelSelector:
    try:
        return compiled(source)
    except SelectorError:
        return NOTHING  # whoever requests it by `of` compiles it again and gets the error


def _demanded(selector: LabelSelector) -> Iterator[tuple[str, str]]:
    """Yield labels that whatever is selected has."""
    for requirement in selector.requirements[:MOST_DEMANDED]:
        if requirement.operator == "in" and len(requirement.values) == 1:
            yield requirement.key, next(iter(requirement.values))
