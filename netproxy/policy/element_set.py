"""Immutable set of elements; a changed copy shares all but the changed parts with the original. No I/O.

A selection may have 100 000 members, of which one changes at a time. Rulesets, the shadow of the kernel's table and threads
that compare it hold older versions, so no version changes in place. A set is a tree of small dicts by bits of the elements'
hashes (a hash array mapped trie): a change copies one dict and the nodes above it, and a comparison of two versions skips
shared nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, ItemsView, Iterable, Iterator, Mapping
from typing import Self, TypeVar

from netproxy.slices import run_to_end

LEAF = 32
"""Elements of a dict above which it is divided."""
BITS = 2
"""Bits of the hash by which a node is divided."""
DEEPEST = 60
"""Bits of the hash from which on nothing is divided."""
SHRUNKEN = 16
"""The tree is built again when the set has had this many times as many elements."""
SLICE = 1_000
"""Elements that are put into a tree between suspensions."""
CHILDREN = 1 << BITS
_MASK = CHILDREN - 1
Leaf = dict[str, str]
"""Elements with empty data, as the elements of sets have."""
Node = Leaf | tuple["Node", ...]
T = TypeVar("T")


class ElementSet(Mapping[str, str]):
    """Elements of a set, each mapped to its data, which is ""."""

    __slots__ = ("_most", "_root", "_size")

    def __init__(self, elements: Mapping[str, str] | None = None) -> None:
        elements = elements or {}
        self._root: Node = run_to_end(_tree(elements))
        self._size = self._most = len(elements)

    @classmethod
    def made_in_slices(cls, elements: Mapping[str, str]) -> Generator[None, None, ElementSet]:
        """Return a set of elements, in slices. The caller does not change them meanwhile."""
        made = cls()
        made._root = yield from _tree(elements)
        made._size = made._most = len(elements)
        return made

    def added(self, element: str) -> ElementSet:
        """Return the set with another element."""
        return self if element in self else self._changed(_added(self._root, element, hash(element), 0), self._size + 1)

    def removed(self, element: str) -> ElementSet:
        """Return the set without an element."""
        return (
            self if element not in self else self._changed(_removed(self._root, element, hash(element)), self._size - 1)
        )

    def _changed(self, root: Node, size: int) -> ElementSet:
        made = ElementSet()
        made._root, made._size, made._most = root, size, max(self._most, size)
        return ElementSet(dict(made.items())) if made._most > LEAF and size * SHRUNKEN < made._most else made

    def different_parts(self, new: Self) -> Iterator[tuple[Leaf, Leaf]]:
        """Yield pairs of parts of this set and a new one, outside which both have the same elements."""
        return _different(self._root, new._root)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        for leaf in _leaves(self._root):
            yield from leaf

    def __getitem__(self, element: str) -> str:
        node, bits = self._root, hash(element)
        while isinstance(node, tuple):
            node, bits = node[bits & _MASK], bits >> BITS
        return node[element]

    def items(self) -> ItemsView[str, str]:
        return _Items(self)


class _Items(ItemsView[str, str]):
    """Elements and data, without a search for each."""

    _mapping: ElementSet

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for leaf in _leaves(self._mapping._root):
            yield from leaf.items()


def different_parts(
    old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """Yield pairs of parts of the elements of a set or map, outside which nothing differs."""
    if isinstance(old, ElementSet) and isinstance(new, ElementSet):
        yield from old.different_parts(new)
    elif old is not new:
        yield old, new


def in_parts(items: Iterable[T]) -> Iterator[list[T]]:
    """Yield items in lists of `SLICE`, the last one shorter."""
    left = iter(items)
    while part := list(itertools.islice(left, SLICE)):
        yield part


def _tree(elements: Mapping[str, str]) -> Generator[None, None, Node]:
    count = 1
    while len(elements) > LEAF * count:
        count *= CHILDREN
    if count == 1:
        return dict(elements)
    leaves: list[Leaf] = [{} for _ in range(count)]
    mask = count - 1
    for part in in_parts(elements):
        for element in part:
            leaves[hash(element) & mask][element] = ""
        if len(part) == SLICE:
            yield
    return _joined(leaves)


def _joined(leaves: list[Leaf]) -> Node:
    """Return the node above leaves that are ordered by the bits of the hash that follow."""
    return leaves[0] if len(leaves) == 1 else tuple(_joined(leaves[child::CHILDREN]) for child in range(CHILDREN))


def _added(node: Node, element: str, bits: int, depth: int) -> Node:
    """Return a node with an element; `bits` are those of its hash that were not used above it, `depth` the number used."""
    if isinstance(node, tuple):
        child = bits & _MASK
        return (*node[:child], _added(node[child], element, bits >> BITS, depth + BITS), *node[child + 1 :])
    leaf = {**node, element: ""}
    if len(leaf) <= LEAF or depth >= DEEPEST:
        return leaf
    children: tuple[Leaf, ...] = tuple({} for _ in range(CHILDREN))
    for each in leaf:
        children[hash(each) >> depth & _MASK][each] = ""
    return children


def _removed(node: Node, element: str, bits: int) -> Node:
    if isinstance(node, tuple):
        child = bits & _MASK
        return (*node[:child], _removed(node[child], element, bits >> BITS), *node[child + 1 :])
    return {each: "" for each in node if each != element}


def _leaves(node: Node) -> Iterator[Leaf]:
    """Yield the dicts of a tree."""
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple):
            waiting += each
        else:
            yield each


def _different(old: Node, new: Node) -> Iterator[tuple[Leaf, Leaf]]:
    waiting = [(old, new)]
    while waiting:
        before, after = waiting.pop()
        if before is after:
            continue
        if isinstance(before, tuple) and isinstance(after, tuple):
            waiting += zip(before, after, strict=True)
        else:
            yield _flat(before), _flat(after)


def _flat(node: Node) -> Leaf:
    return node if isinstance(node, dict) else {element: "" for leaf in _leaves(node) for element in leaf}
