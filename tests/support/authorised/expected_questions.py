"""The questions that upstream asks of a request beyond the first, where the request comes about.

Each rule names its source in upstream. They look at what was asked for and what came of it, never at what the server asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

from kube.journal import PATH as JOURNAL
from kube.json_object import Object
from tests.support.authorised.calls import Call
from tests.support.authorised.objects import PARAMETERS
from tests.support.authorised.recording import Question, Record, Shown
from tests.support.authorised.targets import TARGETS
from tests.support.authorised.world import Sent

RBAC, SIGNERS, POLICIES = "rbac.authorization.k8s.io", "certificates.k8s.io", "admissionregistration.k8s.io"
_GC_FIELDS = ("ownerReferences", "finalizers", "managedFields", "selfLink", "resourceVersion")
_AGENT_CONNECTIONS = ("exec", "attach", "run", "portforward", "cri")
AGENT_PORT = 10250
SYSTEM_MASTERS = "system:masters"
ANY_FINALIZERS = Question("update", "*", "*", "finalizers", "", "*")
"""Permission to set the finalizers of everything: whoever has it is asked about no owner."""


def further(call: Call, first: Question, sent: Sent, record: Record, groups: tuple[str, ...]) -> Iterator[Question]:
    """Yield the questions that a request which came about must have been asked besides the first."""
    if first.subresource in ("exec", "attach", "portforward") and first.verb == "get" and record.dials:
        yield first._replace(verb="create")  # pod/rest/authorize.go: ensureAuthorizedForVerb
    if (first.resource, first.subresource) == ("nodes", "proxy") and first.verb != "create" and record.dials:
        # Not upstream's: what is behind nodes/proxy is exec in every pod, and is asked for as such (docs/security.md).
        inner = call.path.partition("/proxy/")[2].strip("/").partition("/")[0]
        agent = any(dial.port == AGENT_PORT for dial in record.dials)
        if call.upgrades or (agent and inner.lower() in _AGENT_CONNECTIONS):
            yield first._replace(verb="create")
    if not 200 <= sent.status < 300:
        return
    if first.path == JOURNAL:
        yield about_journal(call)
    shown = next((s for s in record.shown if s.phase == "validate" and s.resource == first.resource), None)
    if shown is None or shown.obj is None:
        return
    if shown.operation == "CREATE" and first.verb in ("update", "patch"):
        yield first._replace(verb="create")  # endpoints/handlers/update.go, patch.go: withAuthorization
    if SYSTEM_MASTERS not in groups:
        yield from _rbac(first, shown)
        yield from _policies(first, shown)
    yield from _signers(first, shown)
    yield from _claims(first, shown)
    yield from _owners(first, shown)


def about_journal(call: Call) -> Question:
    """Return what Wherry asks of a request for the journal besides its path: get of the object that the query names."""
    query = parse_qs(call.query, keep_blank_values=True)
    group, plural, namespace, name = (query.get(key, [""])[0] for key in ("group", "resource", "namespace", "name"))
    namespaced = any(t.namespaced for t in TARGETS.values() if (t.group, t.plural) == (group, plural))
    return Question("get", group, plural, "", namespace if namespaced else "", name)


def _rbac(first: Question, shown: Shown) -> Iterator[Question]:
    """registry/rbac/escalation_check.go: RoleEscalationAuthorized is asked of every write, BindingAuthorized of changes."""
    assert shown.obj is not None
    if first.group != RBAC or (shown.old is not None and _without_gc(shown.obj) == _without_gc(shown.old)):
        return
    if first.resource in ("roles", "clusterroles"):
        yield Question("escalate", RBAC, first.resource, "", first.namespace, first.name)
    else:
        ref = shown.obj.get("roleRef") or {}
        plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(ref.get("kind", ""), "")
        if plural:
            yield Question("bind", RBAC, plural, "", first.namespace, ref.get("name", ""))


def _without_gc(obj: Object) -> Object:
    """Return an object without what the garbage collector needs to write (IsOnlyMutatingGCFields)."""
    return obj | {"metadata": {k: v for k, v in obj["metadata"].items() if k not in _GC_FIELDS}}


def _signers(first: Question, shown: Shown) -> Iterator[Question]:
    """plugin/pkg/admission/certificates: approve and sign, by the signer's name."""
    if (first.group, first.resource) != (SIGNERS, "certificatesigningrequests") or shown.old is None:
        return
    signer, new, old = shown.old["spec"]["signerName"], shown.obj or {}, shown.old
    if first.subresource == "approval":
        yield Question("approve", SIGNERS, "signers", "", "", signer)
    if first.subresource == "status" and _outcome(new) != _outcome(old):
        yield Question("sign", SIGNERS, "signers", "", "", signer)


def _outcome(request: Object) -> tuple[Any, bool]:
    status = request.get("status") or {}
    return status.get("certificate"), any(c.get("type") == "Failed" for c in status.get("conditions") or ())


def _policies(first: Question, shown: Shown) -> Iterator[Question]:
    """registry/admissionregistration/*/authz.go: who names parameters must be able to read them."""
    if first.group != POLICIES:
        return
    new, old = ((obj or {}).get("spec", {}) for obj in (shown.obj, shown.old))
    kind, ref = new.get("paramKind"), new.get("paramRef")
    if first.resource.endswith("policies") and kind and kind != old.get("paramKind"):
        group, resource = _kind(kind)
        yield Question("get", group, resource, "", "*", "*")
    changed = (ref, new.get("policyName")) != (old.get("paramRef"), old.get("policyName"))
    if first.resource.endswith("policybindings") and ref and changed:
        group, resource = PARAMETERS.get(new.get("policyName", ""), ("*", "*"))
        verb = "get" if ref.get("name") else "list"
        yield Question(verb, group, resource, "", ref.get("namespace", ""), ref.get("name", ""))


def _kind(kind: Object) -> tuple[str, str]:
    group = kind["apiVersion"].rpartition("/")[0]
    found = next((t for t in TARGETS.values() if (t.api_version, t.kind) == (kind["apiVersion"], kind["kind"])), None)
    return group, found.plural if found is not None else "*"


def _claims(first: Question, shown: Shown) -> Iterator[Question]:
    """registry/resource/utils.go: AuthorizedForBinding (DRAResourceClaimGranularStatusAuthorization, on in v1.36)."""
    if (first.resource, first.subresource) != ("resourceclaims", "status"):
        return
    new, old = ((obj or {}).get("status") or {} for obj in (shown.obj, shown.old))
    if any((new.get(k) or None) != (old.get(k) or None) for k in ("allocation", "reservedFor")):
        yield Question(first.verb, first.group, "resourceclaims", "binding")


def _owners(first: Question, shown: Shown) -> Iterator[Question]:
    """plugin/pkg/admission/gc: changing owners asks for delete, blocking an owner's deletion for its finalizers."""
    new, old = (((obj or {}).get("metadata") or {}).get("ownerReferences") or [] for obj in (shown.obj, shown.old))
    if new == old or (first.group, first.resource, first.subresource) == _FREE:
        return
    if shown.operation == "UPDATE":
        yield first._replace(verb="delete")
    blocked = {owner.get("uid") for owner in old if owner.get("blockOwnerDeletion")}
    blocking = [owner for owner in new if owner.get("blockOwnerDeletion") and owner.get("uid") not in blocked]
    if blocking:
        yield ANY_FINALIZERS
    for owner in blocking:
        target = next(t for t in TARGETS.values() if (t.api_version, t.kind) == (owner["apiVersion"], owner["kind"]))
        namespace = first.namespace if target.namespaced else ""
        yield Question("update", target.group, target.plural, "finalizers", namespace, owner["name"])


_FREE = ("", "pods", "status")
"""Resource whose owners may change without these permissions (kubeapiserver's whitelist of the plugin)."""


def dry(call: Call) -> bool:
    return "All" in parse_qs(call.query).get("dryRun", [])
