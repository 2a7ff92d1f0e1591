"""The RBAC authorizer: what roles bound to a user, or to one of their groups, allow.

Roles and bindings are fed in from the watch cache; bindings are indexed by subject, of a namespace or of the cluster, and a
change indexes its own subjects alone. A role's rules are compiled once into a `RuleSet`. For a user (name and groups) and a
namespace the rule sets are gathered once into another one, which caches its decision by (verb, group, resource); object names
are looked at after that, so the memory stays small however many objects there are. A change to a role or a binding forgets at
once what was gathered where it counts: in its namespace, or everywhere.

Rules match as upstream's: "*" for verbs, groups and resources, `*/scale` for that subresource of every
resource, no resourceNames for every name, a path ending in "*" for a prefix. Nothing denies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
LARGE = 256
"""Rules of a role from which on they are compiled when the role comes: that takes a millisecond and more."""
K = TypeVar("K")
V = TypeVar("V")


class RuleSet:
    """The union of some rules, and of other sets, compiled for quick answers."""

    __slots__ = ("_by_resource", "_parts", "_paths", "_resource_rules", "paths_seen")

    def __init__(self, rules: Sequence[Rule], parts: Sequence[RuleSet] = ()) -> None:
        self._parts = parts
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
        answer = self._allowed((verb, group, resource, subresource))
        return answer if isinstance(answer, bool) else name in answer

    def _allowed(self, key: tuple[str, str, str, str]) -> bool | frozenset[str]:
        answer = self._by_resource.get(key)
        if answer is None:
            answer = self._names(*key)
            if is_short(*key):
                _keep(self._by_resource, key, answer)
        return answer

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
        for part in self._parts:
            answer = part._allowed((verb, group, resource, subresource))
            if answer is True:
                return True
            names |= answer or frozenset()
        return frozenset(names) if names else False

    def allows_path(self, verb: str, path: str) -> bool:
        key = (verb, path)
        answer = self.paths_seen.get(key)
        if answer is None:
            answer = any(
                (verb in verbs or "*" in verbs) and any(path_matches(p, path) for p in paths)
                for verbs, paths in self._paths
            ) or any(part.allows_path(verb, path) for part in self._parts)
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
        self._bound: dict[str, dict[str, tuple[str, ...]]] = {}
        """The names of bindings by namespace ("" for the cluster's) and subject."""
        self._compiled: dict[tuple[str, str, str], RuleSet] = {}
        """The rules of roles, by target, namespace and name."""
        self._granted: dict[str, dict[_Who, Granted]] = {}
        """What was gathered, by namespace and user."""
        self._kept = 0

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
            if obj is not None and len(obj.get("rules") or ()) > LARGE:
                self._rule_set(target, namespace, name)  # a question may be about many such roles
        if target == CLUSTER_ROLES:
            self._granted.clear()
            self._kept = 0
        else:
            self._kept -= len(self._granted.pop(namespace, ()))

    def _bind(self, namespace: str, name: str, subjects: Iterable[Object]) -> None:
        here, mine = self._bound.setdefault(namespace, {}), (name,)
        for subject in {subject_key(s, namespace) for s in subjects}:
            others = here.get(subject)
            here[subject] = mine if others is None else (*others, name)
        if not here:
            del self._bound[namespace]

    def _unbind(self, namespace: str, name: str, subjects: Iterable[Object]) -> None:
        here = self._bound.get(namespace, {})
        for subject in {subject_key(s, namespace) for s in subjects}:
            left = tuple(each for each in here[subject] if each != name)
            if left:
                here[subject] = left
            else:
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
        user = attributes.user
        everywhere = self._granted_to(user, "")
        rules = everywhere.rules
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
        if not attributes.namespace:
            return Decision.NO_OPINION, _missing(everywhere.missing)
        here = self._granted_to(user, attributes.namespace)
        if here.rules.allows(*request):
            return Decision.ALLOW, ""
        return Decision.NO_OPINION, _missing(everywhere.missing + here.missing)

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

    def rules_for(self, user: UserInfo, namespace: str) -> list[Rule]:
        """Return all rules that a user has in a namespace, or cluster-wide for ""."""
        found: list[Rule] = []
        for where in dict.fromkeys(("", namespace)):
            for binding in self._bindings(where, user):
                found += self.role_rules(binding["roleRef"], where) or ()
        return found

    def role_rules(self, role_ref: Object, namespace: str) -> list[Rule] | None:
        """Return the rules of the role that a binding refers to, None where there is no such role."""
        target, where, name = _role_key(role_ref, namespace)
        role = self._objects[target].get((where, name))
        return None if role is None else list(role.get("rules") or ())

    def cluster_roles(self) -> Iterable[Object]:
        return self._objects[CLUSTER_ROLES].values()

    def _rules_of(self, role_ref: Object, namespace: str) -> RuleSet | None:
        """Return the compiled rules of the role that a binding refers to, None where there is no such role."""
        return self._rule_set(*_role_key(role_ref, namespace))

    def _rule_set(self, target: str, namespace: str, name: str) -> RuleSet | None:
        found = self._compiled.get((target, namespace, name))
        if found is None:
            role = self._objects[target].get((namespace, name))
            if role is None:
                return None
            found = self._compiled[target, namespace, name] = RuleSet(role.get("rules") or ())
        return found

    def _granted_to(self, user: UserInfo, namespace: str) -> Granted:
        """Return what the bindings of a namespace ("" for the cluster's) grant a user."""
        who = (user.name, user.groups)
        here = self._granted.get(namespace)
        found = here.get(who) if here is not None else None
        if found is None:
            found = self._gather(user, namespace)
            if is_short(user.name, *user.groups, longest=LONGEST_USER) and is_short(namespace):
                if self._kept >= _KEPT:
                    self._granted.clear()
                    self._kept = 0
                self._granted.setdefault(namespace, {})[who] = found
                self._kept += 1
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
        return Granted(RuleSet((), tuple(parts.values())), missing)


@dataclass(frozen=True, slots=True)
class Granted:
    """Rules granted by bindings, and missing roles, which explain a denial."""

    rules: RuleSet
    missing: list[str]


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
