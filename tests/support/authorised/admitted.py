"""Compares objects at admission with stored objects: each change, in the form that upstream shows it in.

`OTHERWISE` names the changes that upstream, too, stores without showing that very change, and why.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube.json_object import Object
from tests.support.authorised.calls import Call
from tests.support.authorised.expected_questions import dry
from tests.support.authorised.recording import Question, Record, Shown, Write
from tests.support.authorised.targets import same_storage, target_of
from tests.support.authorised.world import Sent

OTHERWISE: dict[tuple[str, str], str] = {
    (
        "pods",
        "binding",
    ): "CREATE of a Binding is shown; the pod's own change goes straight to the store (BindingREST.assignPod)",
    ("bindings", ""): "the same through the old collection (LegacyBindingREST)",
    ("pods", "eviction"): "CREATE of an Eviction is shown; the pod is marked and deleted without being shown again"
    " (addConditionAndDeletePod with ValidateAllObjectFunc)",
}
_OTHER_KINDS = {"scale": "Scale", "eviction": "Eviction", "binding": "Binding", "token": "TokenRequest"}
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_KEPT_BY_STRATEGY = (
    "resourceVersion",
    "managedFields",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_REVIEWS = ("authorization.k8s.io", "authentication.k8s.io")
_CONNECTED = ("exec", "attach", "portforward", "proxy")


def unadmitted(call: Call, first: Question, record: Record, sent: Sent) -> Iterator[str]:
    """Yield changes that admission was not shown, or was shown as something else than they are."""
    validated = [shown for shown in record.shown if shown.phase == "validate" and shown.user != "system:apiserver"]
    for write in record.writes:
        if write.identity == "system:apiserver":
            continue
        if dry(call):
            yield f"{write.key} was written in a dry run"
        if (first.resource, first.subresource) not in OTHERWISE:
            yield from _of_write(write, first, validated)
    yield from _of_request(call, first, record, sent, validated)
    for shown in validated:
        if shown.operation in _OPTIONS and shown.options != _OPTIONS[shown.operation]:
            yield f"{shown.operation} of {shown.resource}/{shown.subresource} was shown with {shown.options}"
        if shown.operation in _OPTIONS and dry(call) and not shown.dry_run:
            yield f"a dry run of {shown.operation} {shown.resource}/{shown.subresource} was shown as none"
        if not any(s.phase == "admit" and _place(s) == _place(shown) for s in record.shown):
            yield f"{shown.operation} of {shown.resource}/{shown.subresource} was validated and never mutated"


def _place(shown: Shown) -> tuple[str, str, str, str]:
    return shown.operation, shown.resource, shown.subresource, shown.namespace


def _of_write(write: Write, first: Question, validated: list[Shown]) -> Iterator[str]:
    found = target_of(write.key)
    if found is None:
        return
    target, namespace, name = found
    operation = "CREATE" if write.old is None else "UPDATE"
    if first.verb in ("delete", "deletecollection"):
        operation = "DELETE"
    what = f"{operation} of {target.plural}.{target.group} {namespace}/{name}"
    about = [
        s
        for s in validated
        if s.operation == operation
        and same_storage(s.group, s.resource, target)
        and (s.name or (s.obj or {}).get("metadata", {}).get("name")) == name
        and (s.namespace == namespace or not target.namespaced)
    ]
    if not about:
        yield f"{what} was stored and not shown to admission"
        return
    shown = about[-1]
    if shown.subresource != first.subresource:
        yield f"{what} through {first.subresource!r} was shown as {shown.subresource!r}"
    kind = _OTHER_KINDS.get(first.subresource)
    if kind is not None:
        if (shown.obj or {}).get("kind") != kind:
            yield f"{what} through {first.subresource} was shown as a {(shown.obj or {}).get('kind')}, not as a {kind}"
        return
    if _plain(shown.old) != _plain(write.old):
        yield f"{what} was shown with another old object than what was stored: {_difference(shown.old, write.old)}"
    wanted = None if operation == "DELETE" else write.new
    if write.new is None and operation == "UPDATE":
        return  # the last finalizer went, and with it the object: the update was shown
    if _plain(shown.obj) != _plain(wanted):
        yield f"{what} was shown with another object than was stored: {_difference(shown.obj, wanted)}"


def _of_request(call: Call, first: Question, record: Record, sent: Sent, validated: list[Shown]) -> Iterator[str]:
    """Yield what has to be shown once for the whole request: acts and connections."""
    operation, kind = "", ""
    if (first.resource, first.subresource) in OTHERWISE or first.subresource == "token":
        if first.verb == "create" and 200 <= sent.status < 300:
            operation, kind = "CREATE", _OTHER_KINDS.get(first.subresource, "Binding")
    elif first.group in _REVIEWS and first.verb == "create" and 200 <= sent.status < 300:
        operation = "CREATE"
    elif first.subresource in _CONNECTED and record.dials:
        operation = "CONNECT"
    if not operation:
        return
    found = [
        s
        for s in validated
        if (s.operation, s.group, s.resource, s.subresource)
        == (operation, first.group, first.resource, first.subresource)
        and s.namespace == first.namespace
        and (not first.name or s.name == first.name)
    ]
    if not found:
        yield f"{operation} of {first.resource}/{first.subresource} was done and not shown to admission"
    elif kind and (found[0].obj or {}).get("kind") != kind:
        yield f"{operation} of {first.resource}/{first.subresource} was shown as a {(found[0].obj or {}).get('kind')}"


def _plain(obj: Object | None) -> Object | None:
    """Return an object without the fields that only the strategy or the store sets, and without what is empty."""
    if obj is None:
        return None
    meta = {k: v for k, v in (obj.get("metadata") or {}).items() if k not in _KEPT_BY_STRATEGY and v}
    rest = {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata") and v not in ({}, None, [])}
    return {"metadata": meta, **rest}


def _difference(a: Object | None, b: Object | None) -> str:
    if a is None or b is None:
        return f"{'nothing' if a is None else 'something'} against {'nothing' if b is None else 'something'}"
    a, b = _plain(a) or {}, _plain(b) or {}
    return ", ".join(f"{k}: {a.get(k)} against {b.get(k)}" for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k))
