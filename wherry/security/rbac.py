"""Section 5.1: RBAC permissions, computed from the roles and bindings.

Subjects of the system (users and groups `system:...`, accounts of kube-system) are exempt, because upstream's default roles are
for them. Groups of all users are not exempt, nor is system:masters in further bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from control.auth.rule_set import RuleSet
from kube.json_object import Object
from wherry.security.facts import Facts
from wherry.security.rows import Check, CheckResult, judge, listed, passed

EVERYBODY = ("system:authenticated", "system:unauthenticated", "system:serviceaccounts", "system:masters")
DEFAULT = "kubernetes.io/bootstrapping"
Wanted = tuple[str, str, str, str]
"""Verb, API group, resource, subresource."""


def bindings(facts: Facts) -> Iterator[tuple[Object, str, str, list[Object]]]:
    """Yield each binding with its namespace ("" for all), the role's name and its rules."""
    cluster = {role["metadata"]["name"]: role.get("rules") or [] for role in facts.of("ClusterRole")}
    local = {
        (role["metadata"]["namespace"], role["metadata"]["name"]): role.get("rules") or [] for role in facts.of("Role")
    }
    for binding in [*facts.of("ClusterRoleBinding"), *facts.of("RoleBinding")]:
        namespace, role = binding["metadata"].get("namespace", ""), binding["roleRef"]
        rules = cluster.get(role["name"]) if role["kind"] == "ClusterRole" else local.get((namespace, role["name"]))
        yield binding, namespace, role["name"], rules or []


def subjects(binding: Object) -> Iterator[str]:
    """Yield the subjects of a binding that are not of the system's own, as people write them."""
    namespace = binding["metadata"].get("namespace", "")
    for subject in binding.get("subjects") or []:
        name = subject["name"]
        if subject["kind"] == "ServiceAccount":
            where = subject.get("namespace") or namespace
            if where != "kube-system":
                yield f"ServiceAccount {where}/{name}"
        elif not name.startswith("system:") or name in EVERYBODY or name.startswith("system:serviceaccounts:"):
            yield f"{subject['kind']} {name}"


def who_may(facts: Facts, wanted: tuple[Wanted, ...]) -> list[str]:
    """Return the subjects that have one of the rights anywhere; the group system:masters by its default is not named."""
    found = []
    for binding, _, role, rules in bindings(facts):
        if not any(RuleSet(rules).allows(verb, group, kind, sub, "") for verb, group, kind, sub in wanted):
            continue
        default = binding["metadata"]["name"] == role == "cluster-admin"
        found += [each for each in subjects(binding) if not (default and each == "Group system:masters")]
    return found


def _few(what: str, *wanted: Wanted) -> Callable[[Facts], CheckResult]:
    def look(facts: Facts) -> CheckResult:
        if found := who_may(facts, wanted):
            return judge(f"{listed(found)} may {what}", "take the right from those who need it not")
        return passed(f"nobody but the system may {what}")

    return look


def _cluster_admin(facts: Facts) -> CheckResult:
    found = []
    for binding, _, role, _ in bindings(facts):
        if role == "cluster-admin":
            default = binding["metadata"]["name"] == "cluster-admin"
            found += [each for each in subjects(binding) if not (default and each == "Group system:masters")]
    if found:
        return judge(f"{listed(found)} have it", "`kubectl get clusterrolebindings -o wide`; bind a smaller role")
    return passed("only system:masters has it")


def _wildcards(facts: Facts) -> CheckResult:
    wide = [
        role["metadata"]["name"]
        for role in [*facts.of("ClusterRole"), *facts.of("Role")]
        if DEFAULT not in (role["metadata"].get("labels") or {})
        and any("*" in (rule.get(part) or ()) for rule in role.get("rules") or [] for part in ("verbs", "resources"))
    ]
    if wide:
        return judge(f"roles with *: {listed(wide)}", "name verbs and resources in them")
    return passed("no role but upstream's default ones has *")


def _default_accounts(facts: Facts) -> CheckResult:
    bound = [
        each
        for binding, *_ in bindings(facts)
        for each in subjects(binding)
        if each.startswith("ServiceAccount ") and each.endswith("/default")
    ]
    if bound:
        return judge(f"bound to roles: {listed(bound)}", "give those pods an account of their own")
    off = {
        each["metadata"]["namespace"]
        for each in facts.of("ServiceAccount")
        if each["metadata"]["name"] == "default" and each.get("automountServiceAccountToken") is False
    }
    used = [
        namespace(pod)
        for pod in facts.of("Pod")
        if pod["spec"].get("serviceAccountName") == "default" and namespace(pod) not in off and _has_token(pod)
    ]
    if used:
        return judge(
            f"pods have its token in {listed(used)}",
            "automountServiceAccountToken: false in those accounts, and accounts of their own for pods",
        )
    return passed("no pod has the token of a default account")


def _tokens(facts: Facts) -> CheckResult:
    """Find pods with the token of an account that no binding names: whatever it is for, it gives no right."""
    bound = {each for binding, *_ in bindings(facts) for each in subjects(binding)}
    idle = [
        f"{namespace(pod)}/{pod['metadata']['name']}"
        for pod in facts.of("Pod")
        if namespace(pod) != "kube-system"
        and _has_token(pod)
        and f"ServiceAccount {namespace(pod)}/{pod['spec'].get('serviceAccountName')}" not in bound
    ]
    if idle:
        return judge(
            f"tokens of accounts without rights: {listed(idle)}", "automountServiceAccountToken: false in them"
        )
    return passed("every token that is mounted belongs to an account with rights")


def namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", ""))


def _has_token(pod: Object) -> bool:
    volumes = pod["spec"].get("volumes") or []
    sources = (source for volume in volumes for source in (volume.get("projected") or {}).get("sources") or [])
    return any("serviceAccountToken" in source for source in sources)


def _masters(facts: Facts) -> CheckResult:
    more = [
        binding["metadata"]["name"]
        for binding, _, role, _ in bindings(facts)
        for each in subjects(binding)
        if each == "Group system:masters" and not binding["metadata"]["name"] == role == "cluster-admin"
    ]
    if more:
        return judge(f"bound once more by {listed(more)}", "`kubectl delete clusterrolebinding NAME`")
    return judge("admin.kubeconfig is a member, past all authorizers", "keep it for emergencies; people have accounts")


def _widening() -> tuple[Wanted, ...]:
    group = "rbac.authorization.k8s.io"
    roles = [(verb, group, kind, "") for verb in ("bind", "escalate") for kind in ("roles", "clusterroles")]
    return (*roles, *(("impersonate", "", kind, "") for kind in ("users", "groups", "serviceaccounts")))


_HOOKS = "admissionregistration.k8s.io"
_WEBHOOKS = tuple(
    (verb, _HOOKS, f"{kind}webhookconfigurations", "")
    for verb in ("create", "update", "patch")
    for kind in ("mutating", "validating")
)
_YOURS = "passes; permissions that you grant are up to you"

CHECKS = (
    Check("5.1.1", "cluster-admin is bound to system:masters only", _cluster_admin, _YOURS),
    Check(
        "5.1.2",
        "Few subjects can read secrets",
        _few("read secrets", *((verb, "", "secrets", "") for verb in ("get", "list", "watch"))),
        _YOURS,
    ),
    Check("5.1.3", "Roles have no wildcards", _wildcards, _YOURS),
    Check("5.1.4", "Few subjects can create pods", _few("create pods", ("create", "", "pods", "")), _YOURS),
    Check(
        "5.1.5",
        "Default service accounts are not used",
        _default_accounts,
        "depends on you: name a service account in each pod",
    ),
    Check(
        "5.1.6",
        "Tokens are mounted only where needed",
        _tokens,
        "depends on you: tokens are mounted by default, as upstream",
    ),
    Check(
        "5.1.7",
        "system:masters is not used",
        _masters,
        "used by the administrator's kubeconfig, so that broken roles can be repaired",
    ),
    Check(
        "5.1.8",
        "Few subjects can bind, escalate or impersonate",
        _few("bind, escalate or impersonate", *_widening()),
        _YOURS,
    ),
    Check(
        "5.1.9",
        "Few subjects can create persistent volumes",
        _few("create persistent volumes", ("create", "", "persistentvolumes", "")),
        _YOURS,
    ),
    Check(
        "5.1.10",
        "Few subjects can use nodes/proxy",
        _few("use nodes/proxy", ("get", "", "nodes", "proxy"), ("create", "", "nodes", "proxy")),
        _YOURS,
    ),
    Check(
        "5.1.11",
        "Few subjects can approve certificates",
        _few("approve certificates", ("update", "certificates.k8s.io", "certificatesigningrequests", "approval")),
        _YOURS,
    ),
    Check(
        "5.1.12",
        "Few subjects can write webhook configurations",
        _few("write webhook configurations", *_WEBHOOKS),
        _YOURS,
    ),
    Check(
        "5.1.13",
        "Few subjects can create service account tokens",
        _few("make tokens", ("create", "", "serviceaccounts", "token")),
        _YOURS,
    ),
)
