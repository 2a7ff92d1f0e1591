"""The RBAC authorizer: what roles bound to a user, or to one of their groups, allow. Nothing denies.

Roles and bindings are fed in from the watch cache; bindings are indexed by subject, of a namespace or of the cluster, and a
change indexes its own subjects alone. A role's rules are compiled once into a `RuleSet`. For a user (name and groups) and a
namespace with bindings the rule sets are gathered once into another one, which is cached with its decisions (`granted`). A
change to a role or a binding drops at once the sets of its namespace, or all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from control.auth.granted import NOTHING, Granted, GrantedCache
from control.auth.rule_set import Rule, RuleSet
from control.auth.service_accounts import username
from control.auth.user import AuthzAttributes, Decision, UserInfo
from kube.selectors import from_label_selector

GROUP = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
BINDINGS, CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"

Object = dict[str, Any]


class RBACAuthorizer:
    """Allows what the bound roles allow and has no opinion otherwise."""

    follows = (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS)
    """The resources (Resource.target) whose changes must be fed in."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Object]] = {target: {} for target in self.follows}
        self._bound: dict[str, dict[str, dict[str, None]]] = {}
        """The names of bindings by namespace ("" for the cluster's) and subject."""
        self._compiled: dict[tuple[str, str, str], RuleSet] = {}
        """The rules of roles, by target, namespace and name."""
        self._granted = GrantedCache()

    # -- what it knows ------------------------------------------------------------------------------------------------
    def changed(self, target: str, event: str, obj: Object) -> None:
        """Take one ADDED, MODIFIED or DELETED role or binding."""
        metadata = obj["metadata"]
        self._set(target, (metadata.get("namespace", ""), metadata["name"]), None if event == "DELETED" else obj)

    def replaced(self, target: str, objects: Iterable[Object]) -> None:
        """Take the full list of one resource."""
        found = {(o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}
        for key in [key for key in self._objects[target] if key not in found]:
            self._set(target, key, None)
        for key, obj in found.items():
            self._set(target, key, obj)

    def _set(self, target: str, key: tuple[str, str], obj: Object | None) -> None:
        known, (namespace, name) = self._objects[target], key
        old = known.get(key)
        if obj is None:
            known.pop(key, None)
        else:
            known[key] = obj
        if target in (BINDINGS, CLUSTER_BINDINGS):
            before, after = ((each or {}).get("subjects") or () for each in (old, obj))
            if before != after:
                self._unbind(namespace, name, before)
                self._bind(namespace, name, after)
        else:
            self._compiled.pop((target, namespace, name), None)
            if obj is not None:  # compiled now: a request may be about many roles
                self._compiled[target, namespace, name] = RuleSet(obj.get("rules") or ())
        if target == CLUSTER_ROLES:
            self._granted.drop_all()
        else:
            self._granted.drop(namespace)

    def _bind(self, namespace: str, name: str, subjects: Iterable[Object]) -> None:
        here = self._bound.setdefault(namespace, {})
        for subject in subjects:
            here.setdefault(subject_key(subject, namespace), {})[name] = None
        if not here:
            del self._bound[namespace]

    def _unbind(self, namespace: str, name: str, subjects: Iterable[Object]) -> None:
        here = self._bound.get(namespace, {})
        for subject in {subject_key(s, namespace) for s in subjects}:
            del here[subject][name]
            if not here[subject]:
                del here[subject]
        if not here:
            self._bound.pop(namespace, None)

    def _bindings(self, namespace: str, user: UserInfo) -> list[Object]:
        """Return the bindings of a namespace ("" for the cluster's) that name the user or one of their groups."""
        here = self._bound.get(namespace)
        if here is None:
            return []
        subjects = (f"User {user.name}", *(f"Group {g}" for g in user.groups))
        names = dict.fromkeys(name for subject in subjects for name in here.get(subject, ()))
        known = self._objects[BINDINGS if namespace else CLUSTER_BINDINGS]
        return [known[namespace, name] for name in names]

    # -- what it answers ----------------------------------------------------------------------------------------------
    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        everywhere = self._granted_to(attributes.user, "")
        if self._granted.allows(everywhere, attributes):
            return Decision.ALLOW, ""
        if not attributes.is_resource:
            return Decision.NO_OPINION, ""
        here = self._granted_to(attributes.user, attributes.namespace) if attributes.namespace else NOTHING
        if self._granted.allows(here, attributes):
            return Decision.ALLOW, ""
        return Decision.NO_OPINION, _missing((*everywhere.missing, *here.missing))

    def why(self, attributes: AuthzAttributes) -> str:
        """Say which binding allows a request, for reviews; "" where none does."""
        for where in dict.fromkeys(("", attributes.namespace)):
            for binding in self._bindings(where, attributes.user):
                ref = binding["roleRef"]
                rules = self._rules_of(ref, where)
                if rules is None:
                    continue
                if attributes.is_resource:
                    a = attributes
                    allowed = rules.allows(a.verb, a.group, a.resource, a.subresource, a.name)
                else:
                    allowed = rules.allows_path(attributes.verb, attributes.path)
                if allowed:
                    kind, name = ("RoleBinding", f"{binding['metadata']['name']}/{where}")
                    if not where:
                        kind, name = "ClusterRoleBinding", binding["metadata"]["name"]
                    subject = _shown_subject(binding, where, attributes.user)
                    return f'RBAC: allowed by {kind} "{name}" of {ref["kind"]} "{ref["name"]}" to {subject}'
        return ""

    def rules_for(self, user: UserInfo, namespace: str) -> Iterator[Rule]:
        """Yield all rules that a user has in a namespace, or cluster-wide for ""."""
        for where in dict.fromkeys(("", namespace)):
            for binding in self._bindings(where, user):
                yield from self.role_rules(binding["roleRef"], where) or ()

    def held(self, user: UserInfo, namespace: str) -> RuleSet:
        """Return all rules that a user has in a namespace, or cluster-wide for "", compiled."""
        return RuleSet((), [self._granted_to(user, where).rules for where in dict.fromkeys(("", namespace))])

    def role_rules(self, role_ref: Object, namespace: str) -> list[Rule] | None:
        """Return the rules of the role that a binding refers to, None where there is no such role."""
        target, where, name = _role_key(role_ref, namespace)
        role = self._objects[target].get((where, name))
        return None if role is None else list(role.get("rules") or ())

    def cluster_roles(self) -> Iterable[Object]:
        return self._objects[CLUSTER_ROLES].values()

    def _rules_of(self, role_ref: Object, namespace: str) -> RuleSet | None:
        """Return the compiled rules of the role that a binding refers to, None where there is no such role."""
        return self._compiled.get(_role_key(role_ref, namespace))

    def _granted_to(self, user: UserInfo, namespace: str) -> Granted:
        """Return what the bindings of a namespace ("" for the cluster's) grant a user."""
        if namespace not in self._bound:  # a client may name any; nothing is kept for those without bindings
            return NOTHING
        found = self._granted.get(namespace, user)
        if found is None:
            found = self._gather(user, namespace)
            self._granted.put(namespace, user, found)
        return found

    def _gather(self, user: UserInfo, namespace: str) -> Granted:
        parts, missing = dict[int, RuleSet](), list[str]()
        for binding in self._bindings(namespace, user):
            ref = binding["roleRef"]
            rules = self._rules_of(ref, namespace)
            if rules is not None:
                parts[id(rules)] = rules
            else:
                kind = "clusterrole" if ref.get("kind") == "ClusterRole" else "role"
                missing.append(f'{kind}.{GROUP} "{ref.get("name", "")}" not found')
        return Granted(RuleSet((), parts.values()), missing) if parts or missing else NOTHING


def _missing(absent: Sequence[str]) -> str:
    return f"RBAC: {absent[0] if len(absent) == 1 else '[' + ', '.join(absent) + ']'}" if absent else ""


def _role_key(role_ref: Object, namespace: str) -> tuple[str, str, str]:
    """Return the target, the namespace and the name of the role that a binding of a namespace refers to."""
    name = role_ref.get("name", "")
    return (CLUSTER_ROLES, "", name) if role_ref.get("kind") == "ClusterRole" else (ROLES, namespace, name)


def subject_key(subject: Object, namespace: str) -> str:
    """Return the user or group that a subject stands for; an account without a namespace is in the binding's."""
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "ServiceAccount":
        return "User " + username(subject.get("namespace") or namespace, name)
    return f"{kind} {name}"


def _shown_subject(binding: Object, namespace: str, user: UserInfo) -> str:
    mine = {f"User {user.name}", *(f"Group {g}" for g in user.groups)}
    subject = next(s for s in binding["subjects"] if subject_key(s, namespace) in mine)
    if subject["kind"] == "ServiceAccount":
        return f'ServiceAccount "{subject["name"]}/{subject.get("namespace") or namespace}"'
    return f'{subject["kind"]} "{subject["name"]}"'


def aggregate(role: Object, cluster_roles: Iterable[Object]) -> list[Rule]:
    """Return the rules an aggregated ClusterRole must have: those of all roles its selectors match, each rule once."""
    selectors = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or []
    found: list[Rule] = []
    others = sorted(cluster_roles, key=lambda r: str(r["metadata"]["name"]))
    for selector in selectors:
        matching = from_label_selector(selector)
        for other in others:
            if other["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if matching.matches(other["metadata"].get("labels") or {}):
                found += [rule for rule in other.get("rules") or () if rule not in found]
    return found
