"""Server-side apply: sets the fields of the applied configuration; its manager owns exactly these.

The configuration is laid over the live object. Fields that the manager applied before and leaves out now are removed,
unless somebody else owns them. Changing what others own is a conflict, or with `force` takes it over. Rules:
structured-merge-diff's merge.Updater and apimachinery's pkg/util/managedfields.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from control.decoding.decode import load_json
from control.patch.apply.compare import compare, fields_of, with_named
from control.patch.apply.conflict_errors import ApplyConflict
from control.patch.apply.fieldset import Set, difference, intersection, ordered, united
from control.patch.apply.items import ItemWithoutKey
from control.patch.apply.managers import Key, Manager, check_number, decode, encode, well_formed
from control.patch.apply.merge import merge, remove
from control.patch.apply.track import conflicts_of
from control.patch.apply.typed import check, refuse
from control.patch.json_patch import same
from control.patch.schema import Node
from kube.clock import format_time
from kube.errors import bad_request
from kube.json_object import Object

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"
BEFORE_FIRST_APPLY = "before-first-apply"


def apply(
    live: Object | None,
    applied: Object,
    manager: str,
    *,
    force: bool,
    schema: Node,
    now: datetime,
    subresource: str = "",
    skip: frozenset[str] = frozenset(),
) -> Object:
    """Return the object that results from an apply, managedFields included.

    Raises ApplyConflict (409) unless forced, StatusError 400 for a configuration that carries managedFields, 422 for one
    manager too many. `skip` names top-level fields that this endpoint resets and nobody comes to own through it.
    """
    if (applied.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    check(applied, schema)
    base = _bare(live) if live is not None else {}
    managers = decode(well_formed(live.get("metadata", {}).get("managedFields"))) or {} if live is not None else {}
    try:
        if live is not None and not managers:
            managers = _before_first_apply(base, schema, skip, now)
        try:
            result, managers = _apply(
                base,
                applied,
                managers,
                manager,
                force=force,
                schema=schema,
                now=now,
                subresource=subresource,
                skip=skip,
            )
        except ApplyConflict as conflict:
            if manager != KUBECTL:
                raise
            _refuse_but_for(conflict, _client_side_applied(base, schema))
            result, managers = _apply(
                base, applied, managers, manager, force=True, schema=schema, now=now, subresource=subresource, skip=skip
            )
    except ItemWithoutKey as error:
        raise refuse(applied, [str(error)]) from error
    if manager == KUBECTL and base.get("metadata", {}).get("annotations", {}).get(LAST_APPLIED):
        result = _with_last_applied(result, applied)
    metadata = {key: value for key, value in result.get("metadata", {}).items() if key != "managedFields"}
    metadata["managedFields"] = encode(managers)
    check_number(result, metadata["managedFields"], (live or {}).get("metadata", {}).get("managedFields") or [])
    return {**result, "metadata": metadata}


def _apply(
    base: Object,
    applied: Object,
    managers: dict[Key, Manager],
    name: str,
    *,
    force: bool,
    schema: Node,
    now: datetime,
    subresource: str,
    skip: frozenset[str],
) -> tuple[Object, dict[Key, Manager]]:
    mine = Manager(name, "Apply", applied.get("apiVersion", ""), {}, "", subresource)
    last = managers.get(mine.key)
    wanted = fields_of(schema, applied, skip)
    config = {key: value for key, value in applied.items() if key not in skip}
    mine = replace(mine, fields=ordered(wanted or {}), time=last.time if last else "")
    managers = {**managers, mine.key: mine}
    result: Object = merge(schema, base, config)
    if last is not None and last.fields:
        result = _prune(schema, result, last.fields, (manager.fields for manager in managers.values()))
    changed, removed = compare(schema, base, result, skip)
    conflicts = conflicts_of(managers, changed, mine.key)
    if conflicts and not force:
        raise ApplyConflict(conflicts)
    left: dict[Key, Manager] = {}
    for other in managers.values():
        fields = other.fields
        if other.key != mine.key:
            fields = difference(difference(fields or None, changed), removed) or {}
        if fields:
            left[other.key] = other if fields is other.fields else replace(other, fields=ordered(fields))
    if mine.key in left and (not mine.time or not same(_identified(base), _identified(result))):
        left[mine.key] = replace(mine, time=format_time(now))
    return result, left


def _identified(obj: Object) -> Object:
    """Return an object without its apiVersion, which does not identify it."""
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}


def _prune(schema: Node, merged: Object, last: Set, owned: Iterable[Set]) -> Object:
    """Remove fields that the manager applied last time and that have no owner now."""
    doomed = with_named(schema, last)
    pruned = remove(schema, merged, doomed)
    everything = with_named(schema, fields_of(schema, merged))
    # Containers go with their last field, so look what went along that somebody owns or that nobody ever applied.
    named = [fields_of(schema, pruned), *(fields or None for fields in owned)]
    kept = united([found for fields in named if (found := with_named(schema, fields)) is not None])
    pruned = remove(schema, merged, difference(everything, kept))
    dangling = difference(everything, with_named(schema, fields_of(schema, pruned)))
    result: Object = remove(schema, merged, intersection(dangling, doomed))
    return result


def _bare(obj: Object) -> Object:
    metadata = {key: value for key, value in obj.get("metadata", {}).items() if key != "managedFields"}
    return {**obj, "metadata": metadata}


def _before_first_apply(base: Object, schema: Node, skip: frozenset[str], now: datetime) -> dict[Key, Manager]:
    """Give everything an untracked object has to a manager of its own, so that the first apply cannot lose it."""
    fields, _ = compare(schema, {}, base, skip)
    if fields is None:
        return {}
    manager = Manager(BEFORE_FIRST_APPLY, "Update", base.get("apiVersion", ""), ordered(fields), format_time(now))
    return {manager.key: manager}


def _client_side_applied(base: Object, schema: Node) -> Set | None:
    """Return the fields that `kubectl apply` set on the client's side and that are still as it set them."""
    text = base.get("metadata", {}).get("annotations", {}).get(LAST_APPLIED)
    if not text:
        return None
    try:
        config = load_json(text.encode())
    except ValueError:
        return None
    if not isinstance(config, dict):
        return None
    changed, removed = compare(schema, config, base)
    return difference(difference(fields_of(schema, config), changed), removed)


def _refuse_but_for(conflict: ApplyConflict, allowed: Set | None) -> None:
    """Raise what is left of a conflict when some fields may be taken over."""
    rest = [(owner, left) for owner, fields in conflict.conflicts if (left := difference(fields, allowed)) is not None]
    if rest:
        raise ApplyConflict(rest) from conflict


def _with_last_applied(result: Object, applied: Object) -> Object:
    """Keep the annotation of client-side apply in step, so that a later `kubectl apply` on that side works."""
    metadata = dict(applied.get("metadata") or {})
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    metadata["annotations"] = annotations
    # Written as kubectl writes it, keys sorted and HTML escaped: a later `kubectl apply` shall find it unchanged.
    text = msgspec.json.encode({**applied, "metadata": metadata}, order="sorted").decode() + "\n"
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    live = result["metadata"]
    return {**result, "metadata": {**live, "annotations": {**live.get("annotations", {}), LAST_APPLIED: text}}}
