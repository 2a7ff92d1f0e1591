"""The RBAC authorizer: allows requests by the roles that are bound to a user or one of their groups. Nothing denies.

Roles and bindings are fed in from the watch cache; bindings are indexed by subject, of a namespace or of the cluster, and a
change indexes its own subjects alone. A role's rules are compiled once into a `RuleSet`. For a user (name and groups) and a
namespace with bindings the rule sets are gathered once into another one, which is cached with its decisions (`granted`). A
change to a role or a binding drops at once the sets of its namespace, or all. A large role or binding takes effect a little
later, when it is compiled (`compilation`), as a whole; its deletion takes effect at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from control.auth import bound_subjects, rule_set
from control.auth.bound_subjects import BoundSubjects, shown_subject
from control.auth.compilation import Compilation
from control.auth.granted import NOTHING, Granted, GrantedCache
from control.auth.rule_set import Rule, RuleSet, count_values
from control.auth.user import AuthzAttributes, Decision, UserInfo
from kube.field_path import bounded
from kube.json_object import Object
from kube.selectors import from_label_selector

GROUP = "rbac.authorization.k8s.io"
ROLES, CLUSTER_ROLES = f"roles.{GROUP}", f"clusterroles.{GROUP}"
BINDINGS, CLUSTER_BINDINGS = f"rolebindings.{GROUP}", f"clusterrolebindings.{GROUP}"
LARGE_ROLE = 1024
"""Rules, or texts of all rules, from which on a role is compiled in slices."""
MOST_MISSING = 10
"""Roles that do not exist and that a denial names: every denied request in their namespace repeats them."""


class RBACAuthorizer:
    """Allows what the bound roles allow and has no opinion otherwise."""

    follows = (ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS)
    """The resources (Resource.target) whose changes must be fed in."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Object]] = {target: {} for target in self.follows}
        self._bound = BoundSubjects()
        self._compiled: dict[tuple[str, str, str], RuleSet] = {}
        """The rules of roles, by target, namespace and name."""
        self._granted = GrantedCache()
        self.compilation = Compilation()
        """Large roles and bindings that have changed, by target, namespace and name; somebody has to run it."""

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
        if target in (BINDINGS, CLUSTER_BINDINGS):
            self._set_binding(target, key, obj)
        else:
            self._set_role(target, key, obj)

    def _set_binding(self, target: str, key: tuple[str, str], obj: Object | None) -> None:
        """Store the state of a binding together with its subjects, those of a large one later."""
        known, (namespace, name) = self._objects[target], key
        before, after = ((each or {}).get("subjects") or () for each in (known.get(key), obj))

        def replace(subjects: frozenset[str] | None) -> None:
            self._bound.remove(namespace, name, before)
            _store(known, key, obj)
            if subjects is not None:
                self._bound.add_large(namespace, name, subjects)
            else:
                self._bound.add(namespace, name, after)
            self._drop_granted(target, namespace)

        if obj is not None and before != after and len(after) >= bound_subjects.LARGE:
            self.compilation.put((target, *key), lambda: bound_subjects.keys(after, namespace), replace)
            return
        self.compilation.discard((target, *key))
        if obj is not None and before == after:
            known[key] = obj
            self._drop_granted(target, namespace)
        else:
            replace(None)

    def _set_role(self, target: str, key: tuple[str, str], obj: Object | None) -> None:
        """Store the state of a role; the rules of a large one count later."""
        known, old = self._objects[target], self._objects[target].get(key)
        before, after = ((each or {}).get("rules") or () for each in (old, obj))
        _store(known, key, obj)
        if old is not None and obj is not None and before == after:
            return  # other parts of a role grant nothing
        place = target, *key

        def replace(rules: RuleSet | None) -> None:
            if rules is not None:
                self._compiled[place] = rules
            else:
                self._compiled.pop(place, None)
            self._drop_granted(target, key[0])

        if len(after) >= LARGE_ROLE or count_values(after) >= LARGE_ROLE:
            self.compilation.put(place, lambda: rule_set.compiled(after), replace)
            return
        self.compilation.discard(place)
        replace(RuleSet(after) if obj is not None else None)  # compiled now: a request may be about many roles

    def _drop_granted(self, target: str, namespace: str) -> None:
        if target == CLUSTER_ROLES:
            self._granted.drop_all()
        else:
            self._granted.drop(namespace)

    def _bindings(self, namespace: str, user: UserInfo) -> list[Object]:
        """Return the bindings of a namespace ("" for the cluster's) that name the user or one of their groups."""
        names = self._bound.of(namespace, user)
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
        return Decision.NO_OPINION, _missing((*everywhere.missing, *here.missing), everywhere.unnamed + here.unnamed)

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
                    subject = shown_subject(binding["subjects"], where, attributes.user)
                    return f'RBAC: allowed by {kind} "{name}" of {ref["kind"]} "{ref["name"]}" to {subject}'
        return ""

    def rules_for(self, user: UserInfo, namespace: str) -> Iterator[Rule]:
        """Yield all rules that a user has in a namespace, or cluster-wide for ""."""
        for where in dict.fromkeys(("", namespace)):
            for binding in self._bindings(where, user):
                yield from self.role_rules(binding["roleRef"], where) or ()

    def compiled_rules_for(self, user: UserInfo, namespace: str) -> RuleSet:
        """Return all rules that a user has in a namespace, or cluster-wide for "", compiled."""
        return RuleSet((), [self._granted_to(user, where).rules for where in dict.fromkeys(("", namespace))])

    def role_rules(self, role_ref: Object, namespace: str) -> list[Rule] | None:
        """Return the rules of the role that a binding refers to, None if there is no such role."""
        target, where, name = _role_key(role_ref, namespace)
        role = self._objects[target].get((where, name))
        return None if role is None else list(role.get("rules") or ())

    def cluster_roles(self) -> Iterable[Object]:
        return self._objects[CLUSTER_ROLES].values()

    def _rules_of(self, role_ref: Object, namespace: str) -> RuleSet | None:
        """Return the compiled rules of the role that a binding refers to, None if there is no such role."""
        return self._compiled.get(_role_key(role_ref, namespace))

    def _granted_to(self, user: UserInfo, namespace: str) -> Granted:
        """Return what the bindings of a namespace ("" for the cluster's) grant a user."""
        if not self._bound.has(namespace):  # a client may name any; nothing is kept for those without bindings
            return NOTHING
        found = self._granted.get(namespace, user)
        if found is None:
            found = self._gather(user, namespace)
            self._granted.put(namespace, user, found)
        return found

    def _gather(self, user: UserInfo, namespace: str) -> Granted:
        parts, missing = dict[int, RuleSet](), dict[tuple[bool, str], None]()
        for binding in self._bindings(namespace, user):
            ref = binding["roleRef"]
            rules = self._rules_of(ref, namespace)
            if rules is not None:
                parts[id(rules)] = rules
            else:
                missing[ref.get("kind") == "ClusterRole", ref.get("name", "")] = None
        if not parts and not missing:
            return NOTHING
        shown = [_not_found(*each) for each in islice(missing, MOST_MISSING)]
        return Granted(RuleSet((), parts.values()), shown, len(missing) - len(shown))


def _not_found(cluster: bool, name: str) -> str:  # noqa: FBT001 - called with a tuple
    return f'{"clusterrole" if cluster else "role"}.{GROUP} "{bounded(name)}" not found'


def _missing(absent: Sequence[str], unnamed: int) -> str:
    """Return the reason of a denial: at most MOST_MISSING roles that do not exist, and how many others."""
    if not absent:
        return ""
    unnamed += max(len(absent) - MOST_MISSING, 0)
    shown = [*absent[:MOST_MISSING], *([f"and {unnamed} more"] if unnamed else [])]
    return f"RBAC: {shown[0] if len(shown) == 1 else '[' + ', '.join(shown) + ']'}"


def _role_key(role_ref: Object, namespace: str) -> tuple[str, str, str]:
    """Return the target, the namespace and the name of the role that a binding of a namespace refers to."""
    name = role_ref.get("name", "")
    return (CLUSTER_ROLES, "", name) if role_ref.get("kind") == "ClusterRole" else (ROLES, namespace, name)


def _store(known: dict[tuple[str, str], Object], key: tuple[str, str], obj: Object | None) -> None:
    if obj is None:
        known.pop(key, None)
    else:
        known[key] = obj


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
