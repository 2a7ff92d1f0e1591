"""Sets of fields behave as sets of paths do."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from control.patch.apply.fieldset import Set, contains, difference, intersection, is_member, ordered, paths, union

STEPS = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', "v:1"])
PATHS = st.frozensets(st.lists(STEPS, min_size=1, max_size=3).map(tuple), max_size=8)
Path = tuple[str, ...]


def tree(members: frozenset[Path]) -> Set | None:
    root: dict[str, Any] = {}
    for path in members:
        node = root
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}

    def normal(node: dict[str, Any]) -> dict[str, Any]:
        return {} if set(node) == {"."} else {k: v if k == "." else normal(v) for k, v in node.items()}

    return normal(root) if root else None


def members(node: Set | None, prefix: Path = ()) -> frozenset[Path]:
    if node is None:
        return frozenset()
    own = {prefix} if prefix and is_member(node) else set()
    return frozenset(own.union(*(members(part, (*prefix, step)) for step, part in node.items() if step != ".")))


def well_formed(node: Set | None, root: bool = True) -> bool:
    """No empty branches, and "." only beside other steps."""
    if node is None:
        return root
    if root and not node:
        return False
    return set(node) != {"."} and all(step == "." or well_formed(part, False) for step, part in node.items())


@given(PATHS, PATHS)
def test_operations_are_those_of_path_sets(a: frozenset[Path], b: frozenset[Path]) -> None:
    one, other = tree(a), tree(b)
    for operation, expected in ((union, a | b), (difference, a - b), (intersection, a & b)):
        result = operation(one, other)
        assert members(result) == expected
        assert well_formed(result)
    assert contains(one, other) == (b <= a)
    assert (members(one), members(other)) == (a, b)


@given(PATHS)
def test_ordering_changes_nothing_else(a: frozenset[Path]) -> None:
    node = tree(a)
    if node is not None:
        assert ordered(node) == node
        assert list(ordered(node)) == sorted(node)


def test_paths_are_shown_as_upstream_shows_them() -> None:
    node = {
        "f:metadata": {"f:labels": {"f:app.kubernetes.io/name": {}}, "f:finalizers": {'v:"x"': {}}},
        "f:spec": {"f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:name": {}}}, "f:replicas": {}},
    }
    assert paths(node) == [
        '.metadata.finalizers[="x"]',
        ".metadata.labels.app.kubernetes.io/name",
        '.spec.ports[containerPort=80,protocol="TCP"]',
        '.spec.ports[containerPort=80,protocol="TCP"].name',
        ".spec.replicas",
    ]
