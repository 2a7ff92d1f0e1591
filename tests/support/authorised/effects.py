"""Effects of a request, and whether the authorizer allowed them: bytes shown, objects written, backends dialled.

Nothing here looks at the request but for names that its own text contains. An effect is held against the questions that were
answered with yes for the user that the request acted as. What the server writes under its own identity is left out, by that
identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qs

from kube.journal import PATH as JOURNAL
from kube.json_object import Object
from tests.support.authorised import read_rules, shown
from tests.support.authorised.concerning import concerns
from tests.support.authorised.expected_questions import AGENT_PORT
from tests.support.authorised.objects import NODES, POD_ADDRESSES
from tests.support.authorised.recording import Dial, Question, Record, Write
from tests.support.authorised.targets import Target, target_of
from tests.support.authorised.world import EXTENSION, Sent, World

_CHANGES = frozenset({"update", "patch"})
_WHOLE = frozenset({"", "status", "ephemeralcontainers", "resize", "approval", "finalize"})
"""Subresources that show the whole object."""
_PARTS: dict[str, frozenset[str]] = {
    "status": frozenset({"status", "metadata"}),
    "approval": frozenset({"status", "metadata"}),
    "ephemeralcontainers": frozenset({"spec.ephemeralContainers", "status", "metadata"}),
    "resize": frozenset({"spec.containers", "spec.initContainers", "status", "metadata"}),
    "finalize": frozenset({"spec.finalizers", "status", "metadata"}),
    "scale": frozenset({"spec.replicas", "spec.crew", "status", "metadata"}),
    "binding": frozenset({"spec.nodeName", "status", "metadata"}),
    "eviction": frozenset({"status", "metadata"}),
}
"""Fields that may be changed through a subresource."""
_GRANTS = (("escalate", "roles"), ("escalate", "clusterroles"), ("bind", ""))
_METHODS = {"GET": "get", "HEAD": "get", "OPTIONS": "", "POST": "create", "PUT": "update", "PATCH": "patch"} | {
    "DELETE": "delete"
}


def unauthorised(
    world: World, record: Record, sent: Sent, request: bytes, yes: list[Question], master: bool = False
) -> Iterator[str]:
    """Yield what was done that no answer of yes allows; a `master` is in the group that may grant everything."""
    yield from shown.unauthorised(world, sent, request, yes)
    yield from read_rules.unauthorised(record, yes)
    if master:
        yes = [*yes, *(Question(verb, resource=plural) for verb, plural in _GRANTS)]
    for write in record.writes:
        if write.identity != "system:apiserver":
            yield from _written(write, yes)
    for dial in record.dials:
        yield from _dialled(dial, yes)


# -- writes -----------------------------------------------------------------------------------------------------------
def _written(write: Write, yes: list[Question]) -> Iterator[str]:
    found = target_of(write.key)
    if found is None:
        yield f"{write.key} was written, which is of no kind that was asked about"
        return
    target, namespace, name = found
    what = f"{target.plural}.{target.group} {namespace}/{name}"
    about = [q for q in yes if concerns(q, target, namespace, name)]
    if write.old is None:
        if not any(q.verb == "create" and not q.subresource for q in about):
            yield f"{what} came to be without create"
        yield from _granted(target, namespace, name, write, yes)
        return
    if target.plural == "pods":
        bindings = [q for q in yes if (q.verb, q.resource, q.namespace) == ("create", "bindings", namespace)]
        bound = [q for q in bindings if q.name in ("", name)]
        about += [Question("create", "", "pods", "binding", namespace, name)] if bound else []
    if _removes(write):
        gone = any(q.verb in ("delete", "deletecollection") and not q.subresource for q in about)
        evicted = any((q.verb, q.subresource) == ("create", "eviction") for q in about)
        held = bool(write.old["metadata"].get("deletionTimestamp"))
        released = held and any(q.verb in _CHANGES and q.subresource in _WHOLE for q in about)
        if not (gone or evicted or released):
            yield f"{what} was removed without delete"
        return
    assert write.new is not None
    changed = _changed(write.old, write.new)
    if any(q.verb in _CHANGES and not q.subresource for q in about):
        yield from _granted(target, namespace, name, write, yes)
        return
    allowed: set[str] = set()
    for q in about:
        if q.verb in _CHANGES or (q.verb == "create" and q.subresource in ("binding", "eviction")):
            allowed |= _PARTS.get(q.subresource, frozenset())
    beyond = sorted(part for part in changed if part not in allowed and part.partition(".")[0] not in allowed)
    if beyond:
        parts = ", ".join(beyond)
        yield f"{parts} of {what} changed without update or patch of the object or of that part"


def _removes(write: Write) -> bool:
    """Return whether a write takes an object away or marks it for that."""
    assert write.old is not None
    if write.new is None:
        return True
    marks = ("deletionTimestamp", "deletionGracePeriodSeconds")
    return any(write.old["metadata"].get(m) != write.new["metadata"].get(m) for m in marks)


def _changed(old: Object, new: Object) -> set[str]:
    """Return which parts of an object differ: top-level fields, and those of the spec one by one."""
    found = set()
    for key in old.keys() | new.keys():
        before, after = old.get(key), new.get(key)
        if key == "spec" and isinstance(before, dict) and isinstance(after, dict):
            found |= {f"spec.{k}" for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
        elif before != after:
            found.add(key)
    return found


def _granted(target: Target, namespace: str, name: str, write: Write, yes: list[Question]) -> Iterator[str]:
    """Yield what a write of a role or binding gives away by users who hold nothing, unless escalate or bind allow it."""
    new, old = write.new or {}, write.old or {}
    what = f"{target.plural} {namespace}/{name}"
    if target.plural in ("roles", "clusterroles"):
        gives = new.get("rules") or new.get("aggregationRule") or old.get("aggregationRule")
        named = any(q.verb == "escalate" and q.resource == target.plural and q.name in ("", name) for q in yes)
        if gives and not named and _beyond_gc(old, new):
            yield f"{what} was written without escalate, and its writer holds none of its rules"
    elif target.plural in ("rolebindings", "clusterrolebindings"):
        ref = new.get("roleRef") or {}
        if _beyond_gc(old, new) and not any(q.verb == "bind" and q.name in ("", ref.get("name")) for q in yes):
            yield f"{what} was written without bind, and its writer holds none of the role's rules"


def _beyond_gc(old: Object, new: Object) -> bool:
    parts = ("ownerReferences", "finalizers", "managedFields")
    a, b = (
        o | {"metadata": {k: v for k, v in (o.get("metadata") or {}).items() if k not in parts}} for o in (old, new)
    )
    return a != b


# -- backends ---------------------------------------------------------------------------------------------------------
def _dialled(dial: Dial, yes: list[Question]) -> Iterator[str]:
    head = bytes(dial.sent).partition(b"\r\n\r\n")[0].decode("latin-1")
    line, *lines = head.split("\r\n")
    method, path = ([*line.split(" "), "", ""])[:2]
    upgrades = any(text.lower().startswith("upgrade:") for text in lines)
    verb = _METHODS.get(method, "")
    where = f"{dial.host}:{dial.port}"
    for node, address in NODES.items():
        if dial.host != address:
            continue
        if dial.port == AGENT_PORT:
            yield from _agent(node, verb, path, upgrades, yes)
        elif not any((q.verb, q.resource, q.subresource) == (verb, "nodes", "proxy") and _named(q, node) for q in yes):
            yield f"{where} of node {node} was dialled without {verb} nodes/proxy"
        return
    for (namespace, pod), address in POD_ADDRESSES.items():
        if dial.host != address:
            continue
        proxies = [q for q in yes if q.subresource == "proxy" and q.verb == verb and q.namespace == namespace]
        by_pod = any(q.resource == "pods" and _named(q, pod) for q in proxies)
        by_service = any(q.resource == "services" and _named(q, "a") for q in proxies)
        extension = any(q.group == EXTENSION or q.path.startswith(f"/apis/{EXTENSION}") for q in yes)
        if not (by_pod or by_service or (extension and namespace == "right")):
            yield f"{where} of pod {namespace}/{pod} was dialled for {method} without {verb} of a proxy that leads there"
        return
    yield f"{where} was dialled, which is the address of no object that a question was about"


def _named(q: Question, name: str) -> bool:
    parts = q.name.split(":")
    return name == (parts[0] if len(parts) < 3 else parts[1])


def _agent(node: str, verb: str, path: str, upgrades: bool, yes: list[Question]) -> Iterator[str]:
    root, _, rest = path.partition("?")[0].strip("/").partition("/")
    proxied = [q.verb for q in yes if (q.resource, q.subresource) == ("nodes", "proxy") and _named(q, node)]
    connects = upgrades or root.lower() in ("exec", "attach", "run", "portforward", "cri")
    if verb in proxied and (not connects or "create" in proxied):
        return
    if (verb, path.partition("?")[0]) == ("get", JOURNAL) and _journal_question(path, node) in yes:
        return
    namespace, _, name = "/".join(rest.split("/")[:2]).partition("/")
    part = {"exec": "exec", "attach": "attach", "portForward": "portforward", "containerLogs": "log"}.get(root, "")
    needed = Question("get" if part == "log" else "create", "", "pods", part, namespace, name)
    if not part or needed not in yes:
        wanted = f"{verb} and create" if connects and verb != "create" else verb
        yield f"/{root}/{rest} of node {node}'s agent was reached without {wanted} of nodes/proxy"


def _journal_question(path: str, node: str) -> Question:
    """Return the question about the pod whose entries are read of an agent's journal, or about the node itself."""
    query = parse_qs(path.partition("?")[2])
    namespace, name = (query.get(key, [""])[0] for key in ("namespace", "name"))
    return Question("get", "", "pods" if namespace else "nodes", "", namespace, name if namespace else node)
