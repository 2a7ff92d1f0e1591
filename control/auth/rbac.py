"""The RBAC authorizer: what roles bound to a user, or to one of their groups, allow.

Roles and bindings are fed in from the watch cache and kept by subject. For a user (name and groups) and a namespace the rules
are gathered once into a `RuleSet`, which remembers its answer by (verb, group, resource); object names are looked at after
that, so the memory stays small however many objects there are. Any change to a role or a binding forgets all of
it: they change rarely, requests come all the time, and a stale permission must not live for a moment.

Rules match as upstream's: "*" for verbs, groups and resources, `*/scale` for that subresource of every
resource, no resourceNames for every name, a path ending in "*" for a prefix. Nothing denies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from control.auth.service_accounts import username
from control.auth.user import AuthzAttributes, Decision, UserInfo
from kube.remembering import LONGEST_USER, is_short
from kube.selectors import from_label_selector

GROUP = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
BINDINGS, CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"

Object = dict[str, Any]
Rule = dict[str, Any]
_Who = tuple[str, tuple[str, ...]]
_KEPT = 8192
K = TypeVar("K")
V = TypeVar("V")


class RuleSet:
    """The union of some rules, compiled for quick answers."""

    __slots__ = ("_by_resource", "_paths", "_resource_rules", "paths_seen", "rules")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self._resource_rules = [
            (
                frozenset(r.get("verbs", ())),
                frozenset(r.get("apiGroups", ())),
                frozenset(r["resources"]),
                frozenset(r.get("resourceNames", ())),
            )
            for r in rules
            if r.get("resources")
        ]
        self._paths = [(frozenset(r.get("verbs", ())), r["nonResourceURLs"]) for r in rules if r.get("nonResourceURLs")]
        self._by_resource: dict[tuple[str, str, str, str], bool | frozenset[str]] = {}
        self.paths_seen: dict[tuple[str, str], bool] = {}

    def allows(self, verb: str, group: str, resource: str, subresource: str, name: str) -> bool:
        key = (verb, group, resource, subresource)
        answer = self._by_resource.get(key)
        if answer is None:
            answer = self._names(*key)
            if is_short(*key):
                _keep(self._by_resource, key, answer)
        return answer if isinstance(answer, bool) else name in answer

    def _names(self, verb: str, group: str, resource: str, subresource: str) -> bool | frozenset[str]:
        """Return True where any name is allowed, else the names that are."""
        wanted = {"*", f"{resource}/{subresource}", f"*/{subresource}"} if subresource else {"*", resource}
        verbs, groups, names = {"*", verb}, {"*", group}, set[str]()
        for rule_verbs, rule_groups, rule_resources, rule_names in self._resource_rules:
            if verbs.isdisjoint(rule_verbs) or groups.isdisjoint(rule_groups) or wanted.isdisjoint(rule_resources):
                continue
            if not rule_names:
                return True
            names |= rule_names
        return frozenset(names) if names else False

    def allows_path(self, verb: str, path: str) -> bool:
        key = (verb, path)
        answer = self.paths_seen.get(key)
        if answer is None:
            answer = any(
                (verb in verbs or "*" in verbs) and any(path_matches(p, path) for p in paths)
                for verbs, paths in self._paths
            )
            if is_short(*key):
                _keep(self.paths_seen, key, answer)
        return answer


def _keep(answers: dict[K, V], key: K, answer: V) -> None:
    if len(answers) >= _KEPT:
        answers.clear()
    answers[key] = answer


def path_matches(pattern: str, path: str) -> bool:
    """Say whether a nonResourceURLs entry covers a path: equal, "*", or a prefix before a final "*"."""
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


class RBACAuthorizer:
    """Allows what the bound roles allow and has no opinion otherwise."""

    follows = (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS)
    """The resources (Resource.target) whose changes must be fed in."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Object]] = {target: {} for target in self.follows}
        self._subjects: dict[str, dict[str, list[Object]]] | None = None
        self._cluster: dict[_Who, RuleSet] = {}
        self._namespaced: dict[tuple[_Who, str], RuleSet] = {}

    # -- what it knows ------------------------------------------------------------------------------------------------
    def changed(self, target: str, event: str, obj: Object) -> None:
        """Take one ADDED, MODIFIED or DELETED role or binding."""
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if event == "DELETED":
            self._objects[target].pop(key, None)
        else:
            self._objects[target][key] = obj
        self._forget(target)

    def replaced(self, target: str, objects: Iterable[Object]) -> None:
        """Take the full list of one resource."""
        found = {(o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}
        self._objects[target] = found
        self._forget(target)

    def _forget(self, target: str) -> None:
        if target in (BINDINGS, CLUSTER_BINDINGS):
            self._subjects = None
        self._cluster.clear()
        self._namespaced.clear()

    def _bindings(self, namespace: str, user: UserInfo) -> list[Object]:
        """Return the bindings of a namespace ("" for the cluster's) that name the user or one of their groups."""
        if self._subjects is None:
            self._subjects = {}
            for target in (BINDINGS, CLUSTER_BINDINGS):
                for (where, _), binding in self._objects[target].items():
                    here = self._subjects.setdefault(where, {})
                    for subject in {subject_key(s, where) for s in binding.get("subjects") or ()}:
                        here.setdefault(subject, []).append(binding)
        here = self._subjects.get(namespace, {})
        found: dict[int, Object] = {}
        for subject in (f"User {user.name}", *(f"Group {g}" for g in user.groups)):
            for binding in here.get(subject, ()):
                found[id(binding)] = binding
        return list(found.values())

    # -- what it answers ----------------------------------------------------------------------------------------------
    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        user = attributes.user
        rules = self._cluster_rules(user)
        if not attributes.is_resource:
            allowed = rules.allows_path(attributes.verb, attributes.path)
            return (Decision.ALLOW if allowed else Decision.NO_OPINION), ""
        request = (
            attributes.verb,
            attributes.group,
            attributes.resource,
            attributes.subresource,
            attributes.name,
        )
        if rules.allows(*request):
            return Decision.ALLOW, ""
        if attributes.namespace and self._namespace_rules(user, attributes.namespace).allows(*request):
            return Decision.ALLOW, ""
        return Decision.NO_OPINION, self._missing(user, attributes.namespace)

    def why(self, attributes: AuthzAttributes) -> str:
        """Say which binding allows a request, for reviews; "" where none does."""
        for where in dict.fromkeys(("", attributes.namespace)):
            for binding in self._bindings(where, attributes.user):
                rules, ref = RuleSet(self.role_rules(binding["roleRef"], where) or ()), binding["roleRef"]
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

    def rules_for(self, user: UserInfo, namespace: str) -> list[Rule]:
        """Return all rules that a user has in a namespace, or cluster-wide for ""."""
        found = list(self._cluster_rules(user).rules)
        return found + list(self._namespace_rules(user, namespace).rules) if namespace else found

    def role_rules(self, role_ref: Object, namespace: str) -> list[Rule] | None:
        """Return the rules of the role that a binding refers to, None where there is no such role."""
        if role_ref.get("kind") == "ClusterRole":
            role = self._objects[CLUSTER_ROLES].get(("", role_ref.get("name", "")))
        else:
            role = self._objects[ROLES].get((namespace, role_ref.get("name", "")))
        return None if role is None else list(role.get("rules") or ())

    def cluster_roles(self) -> Iterable[Object]:
        return self._objects[CLUSTER_ROLES].values()

    def _cluster_rules(self, user: UserInfo) -> RuleSet:
        who = (user.name, user.groups)
        found = self._cluster.get(who)
        if found is None:
            found = self._gather(user, "")
            if is_short(user.name, *user.groups, longest=LONGEST_USER):
                _keep(self._cluster, who, found)
        return found

    def _namespace_rules(self, user: UserInfo, namespace: str) -> RuleSet:
        key = ((user.name, user.groups), namespace)
        found = self._namespaced.get(key)
        if found is None:
            found = self._gather(user, namespace)
            if is_short(user.name, *user.groups, longest=LONGEST_USER) and is_short(namespace):
                _keep(self._namespaced, key, found)
        return found

    def _gather(self, user: UserInfo, namespace: str) -> RuleSet:
        rules: list[Rule] = []
        for binding in self._bindings(namespace, user):
            rules += self.role_rules(binding["roleRef"], namespace) or ()
        return RuleSet(rules)

    def _missing(self, user: UserInfo, namespace: str) -> str:
        """Name the roles that are bound to the user but do not exist, which is why they may be refused."""
        absent = []
        for where in dict.fromkeys(("", namespace)):
            for binding in self._bindings(where, user):
                ref = binding["roleRef"]
                if self.role_rules(ref, where) is None:
                    kind = "clusterrole" if ref.get("kind") == "ClusterRole" else "role"
                    absent.append(f'{kind}.{GROUP} "{ref.get("name", "")}" not found')
        return f"RBAC: {absent[0] if len(absent) == 1 else '[' + ', '.join(absent) + ']'}" if absent else ""


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
