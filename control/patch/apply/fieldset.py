"""Sets of fields, in the very form they have on the wire (FieldsV1), so that nothing is converted to be worked with.

A set is a tree of dicts: `{"f:spec": {"f:replicas": {}, "f:template": {".": {}, "f:x": {}}}}`. A path is in the set when its
dict is empty or holds "."; other keys lead further down: "f:<field>", 'k:{"name":"x"}' for an item by its key, "v:<value>"
for an item of a set. The empty set is None. Sets are never changed; operations share what they can.
"""

from __future__ import annotations

from typing import Any

from kube.field_path import bounded

Set = dict[str, Any]
HERE = "."
LEAF: Set = {}


def is_member(node: Set) -> bool:
    """Return whether the path that leads to a node is in the set itself."""
    return not node or HERE in node


def union(a: Set | None, b: Set | None) -> Set | None:
    if a is None or a is b:
        return b
    if b is None:
        return a
    if not a or not b:
        # One is a leaf, so the path itself is a member.
        rest = a or b
        return rest if is_member(rest) else {HERE: LEAF, **rest}
    result = dict(a)
    for step, part in b.items():
        mine = a.get(step)
        result[step] = part if mine is None else union(mine, part)
    return result


def difference(a: Set | None, b: Set | None) -> Set | None:
    """Return what is in `a` and not in `b`; `a` itself where that is all of it."""
    if a is None or b is None:
        return a
    if not a:
        return None if is_member(b) else a
    here = HERE in a and not is_member(b)
    kept: Set = {}
    same = here or HERE not in a
    for step, part in a.items():
        if step == HERE:
            continue
        other = b.get(step)
        left = part if other is None else difference(part, other)
        if left is not None:
            kept[step] = left
        same = same and left is part
    if same:
        return a
    if here:
        return {HERE: LEAF, **kept} if kept else LEAF
    return kept or None


def intersection(a: Set | None, b: Set | None) -> Set | None:
    """Return what is in both."""
    if a is None or b is None:
        return None
    here = is_member(a) and is_member(b)
    if len(b) < len(a):
        a, b = b, a
    kept: Set = {}
    for step, part in a.items():
        if step != HERE and step in b and (common := intersection(part, b[step])) is not None:
            kept[step] = common
    if here:
        return {HERE: LEAF, **kept} if kept else LEAF
    return kept or None


def contains(a: Set | None, b: Set | None) -> bool:
    """Return whether everything in `b` is in `a`."""
    if b is None:
        return True
    if a is None or (is_member(b) and not is_member(a)):
        return False
    for step, part in b.items():
        if step != HERE and not contains(a.get(step), part):
            return False
    return True


def ordered(node: Set) -> Set:
    """Return a set with its steps sorted, as it is written: "." first, then fields, keys, values."""
    if len(node) == 1:
        ((step, part),) = node.items()
        return {step: ordered(part)} if part else node
    return {step: ordered(part) if (part := node[step]) else part for step in sorted(node)}


def united(sets: list[Set]) -> Set | None:
    """Unite sets two by two: each union copies what it unites."""
    while len(sets) > 1:
        pairs = zip(sets[::2], sets[1::2], strict=False)
        sets = [union(a, b) or {} for a, b in pairs] + (sets[-1:] if len(sets) % 2 else [])
    return sets[0] if sets else None


def count(node: Set | None) -> int:
    """Return the number of members below a root."""
    number = 0
    for step, part in (node or {}).items():
        if step != HERE:
            number += is_member(part) + (count(part) if part else 0)
    return number


def paths(node: Set | None, prefix: str = "") -> list[str]:
    """Return every member as upstream prints a path: .spec.containers[name="web"].image."""
    if node is None:
        return []
    found = [prefix] if prefix and is_member(node) else []
    for step in sorted(node):
        if step != HERE:
            found += paths(node[step], bounded(prefix + shown(step)))
    return found


def shown(step: str) -> str:
    """Return a step as upstream prints it: .name, [name="web"], [="x"]."""
    kind, _, rest = step.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        # {"containerPort":80,"protocol":"TCP"} is shown as [containerPort=80,protocol="TCP"]
        import msgspec

        keys: dict[str, Any] = msgspec.json.decode(rest)
        return "[" + ",".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in keys.items()) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"
