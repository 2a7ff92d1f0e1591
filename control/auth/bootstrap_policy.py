"""Default roles and bindings of upstream, and their reconciliation in a running cluster.

The facts are in policy/*.yaml in a compact form. At every start what is missing is added: a role, rules a role
does not cover, a binding, a binding's subjects. Nothing is removed, and an object annotated
rbac.authorization.kubernetes.io/autoupdate=false is left alone, so an administrator's changes stay.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import msgspec

from control.auth.rule_coverage import uncovered
from control.auth.rule_set import RuleSet
from kube.json_object import Object

GROUP = "rbac.authorization.k8s.io"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_EVENTS = "create,patch,update core,events.k8s.io events"


def default_policy() -> list[Object]:
    """Return all default ClusterRoles, ClusterRoleBindings, Roles and RoleBindings, in the order to create them."""
    roles, controllers, rest = _read("cluster_roles"), _read("controller_roles"), _read("bindings")
    found = [_cluster_role(title, rules or []) for title, rules in roles.items()]
    for name, rules in controllers.items():
        found.append(_cluster_role(f"system:controller:{name}", rules))
    for name, subjects in rest["cluster_bindings"].items():
        found.append(_binding("ClusterRoleBinding", name, "", ("ClusterRole", name), subjects))
    for name in controllers:
        role = f"system:controller:{name}"
        subjects = [f"ServiceAccount kube-system/{name}"]
        found.append(_binding("ClusterRoleBinding", role, "", ("ClusterRole", role), subjects))
    for namespace, named in rest["roles"].items():
        found += [_object("Role", name, namespace) | {"rules": list(map(rule, r))} for name, r in named.items()]
    for namespace, named in rest["bindings"].items():
        for name, entry in named.items():
            ref = ("Role", entry.get("role", name))
            found.append(_binding("RoleBinding", name, namespace, ref, entry["subjects"]))
    return found


def reconcile(wanted: Object, present: Object | None) -> Object | None:
    """Return what to write so that the present object gives at least what is wanted; None if it does already.

    A binding to another role cannot be changed: the result then has another roleRef than `present`, and the caller
    deletes and creates it.
    """
    if present is None:
        return wanted
    metadata = present["metadata"]
    if (metadata.get("annotations") or {}).get(AUTOUPDATE) == "false":
        return None
    result = present | {"metadata": dict(metadata)}
    changed = False
    for part in ("labels", "annotations"):
        current = metadata.get(part) or {}
        merged = (wanted["metadata"].get(part) or {}) | current
        changed |= merged != current
        if merged:  # an empty map is none: upstream's server, on the same etcd, would report none
            result["metadata"][part] = merged
    if "roleRef" in wanted:
        if present.get("roleRef") != wanted["roleRef"]:
            result, changed = result | {"roleRef": wanted["roleRef"]}, True
        subjects = list(present.get("subjects") or ())
        missing = [s for s in wanted.get("subjects", ()) if s not in subjects]
        if missing:
            result, changed = result | {"subjects": subjects + missing}, True
    elif "aggregationRule" in wanted:
        selectors = list((present.get("aggregationRule") or {}).get("clusterRoleSelectors") or ())
        lacking = [s for s in wanted["aggregationRule"]["clusterRoleSelectors"] if s not in selectors]
        if lacking:
            result["aggregationRule"], changed = {"clusterRoleSelectors": selectors + lacking}, True
    else:
        rules = list(present.get("rules") or ())
        more = uncovered(RuleSet(rules), wanted["rules"]) if rules != wanted["rules"] else []
        if more:
            result, changed = result | {"rules": rules + more}, True
    return result if changed else None


def rule(text: str) -> Object:
    """Read one compact rule."""
    if text == "EVENTS":
        text = _EVENTS
    verbs, *rest = text.split(" ")
    names = sorted({v for word in verbs.split(",") for v in {"READ": _READ, "WRITE": _WRITE}.get(word, [word])})
    if len(rest) == 1:
        return {"verbs": names, "nonResourceURLs": rest[0].split(",")}
    groups = sorted("" if g == "core" else g for g in rest[0].split(","))
    found: Object = {"verbs": names, "apiGroups": groups, "resources": sorted(rest[1].split(","))}
    if len(rest) > 2:
        found["resourceNames"] = sorted(rest[2].split(","))
    return found


def _cluster_role(title: str, rules: list[str]) -> Object:
    name, *marks = title.split(" ")
    role = _object("ClusterRole", name)
    for mark in marks:
        label = f"{GROUP}/aggregate-to-{mark[2:]}"
        if mark.startswith("->"):
            role["metadata"]["labels"][label] = "true"
        else:
            role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
    return role | {"rules": [rule(text) for text in rules]}


def _binding(kind: str, name: str, namespace: str, ref: tuple[str, str], subjects: list[str]) -> Object:
    found = _object(kind, name, namespace) | {"roleRef": {"apiGroup": GROUP, "kind": ref[0], "name": ref[1]}}
    if subjects:
        found["subjects"] = [_subject(*s.split(" ", 1)) for s in subjects]
    return found


def _subject(kind: str, name: str) -> Object:
    if kind == "ServiceAccount":
        namespace, _, name = name.partition("/")
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"apiGroup": GROUP, "kind": kind, "name": name}


def _object(kind: str, name: str, namespace: str = "") -> Object:
    metadata: Object = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {AUTOUPDATE: "true"},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _read(name: str) -> Any:
    return msgspec.yaml.decode((resources.files("control.auth") / "policy" / f"{name}.yaml").read_bytes())
