"""Section 5.2: Pod Security, by the namespaces' levels and the running pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kube.json_object import Object
from wherry.security.facts import Facts
from wherry.security.rbac import namespace
from wherry.security.rows import Check, CheckResult, judge, listed, not_here, passed

SYSTEM = ("kube-system", "kube-public", "kube-node-lease")
ENFORCE = "pod-security.kubernetes.io/enforce"
_LABEL = "`kubectl label namespace NAME pod-security.kubernetes.io/enforce=restricted`"


def own_pods(facts: Facts) -> Iterator[Object]:
    """Yield the pods outside the system namespaces."""
    return (pod for pod in facts.of("Pod") if namespace(pod) not in SYSTEM)


def own_namespaces(facts: Facts) -> Iterator[Object]:
    return (each for each in facts.of("Namespace") if each["metadata"]["name"] not in SYSTEM)


def containers(pod: Object) -> Iterator[Object]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod["spec"].get(field) or []


def _context(container: Object) -> Object:
    return container.get("securityContext") or {}


def _controlled(facts: Facts) -> CheckResult:
    hooks = facts.of("ValidatingWebhookConfiguration") + facts.of("ValidatingAdmissionPolicyBinding")
    if hooks:
        return passed(f"{len(hooks)} webhooks or policies beside Pod Security")
    free = [
        each["metadata"]["name"]
        for each in own_namespaces(facts)
        if (each["metadata"].get("labels") or {}).get(ENFORCE, "privileged") == "privileged"
    ]
    if "PodSecurity" in facts.plugins and not free:
        return passed("every namespace has a Pod Security level")
    return judge(f"no Pod Security level: {listed(free)}", _LABEL)


def _without(what: str, holds: Callable[[Object], bool]) -> Callable[[Facts], CheckResult]:
    def look(facts: Facts) -> CheckResult:
        found = [f"{namespace(pod)}/{pod['metadata']['name']}" for pod in own_pods(facts) if holds(pod)]
        return judge(f"{what}: {listed(found)}", _LABEL) if found else passed("no pod does")

    return look


def _any(test: Callable[[Object], bool]) -> Callable[[Object], bool]:
    return lambda pod: any(test(container) for container in containers(pod))


def _may_be_root(pod: Object) -> bool:
    general = pod["spec"].get("securityContext") or {}
    return any(
        not {**general, **_context(container)}.get("runAsNonRoot")
        and not {**general, **_context(container)}.get("runAsUser")
        for container in containers(pod)
    )


def _dropped(container: Object) -> set[str]:
    return set((_context(container).get("capabilities") or {}).get("drop") or ())


def _windows(pod: Object) -> bool:
    options = [pod["spec"].get("securityContext") or {}, *(_context(each) for each in containers(pod))]
    return any((each.get("windowsOptions") or {}).get("hostProcess") for each in options)


_YOURS = "depends on the namespace's label; the default is privileged, as upstream"


def _row(number: str, title: str, what: str, holds: Callable[[Object], bool]) -> Check:
    return Check(number, title, _without(what, holds), _YOURS)


CHECKS = (
    Check("5.2.1", "Pod security is enforced by policy", _controlled, _YOURS),
    _row("5.2.2", "No privileged containers", "privileged", _any(lambda c: bool(_context(c).get("privileged")))),
    _row("5.2.3", "No pods in the host's process namespace", "hostPID", lambda p: bool(p["spec"].get("hostPID"))),
    _row("5.2.4", "No pods in the host's IPC namespace", "hostIPC", lambda p: bool(p["spec"].get("hostIPC"))),
    _row("5.2.5", "No pods in the host's network", "hostNetwork", lambda p: bool(p["spec"].get("hostNetwork"))),
    _row(
        "5.2.6",
        "No privilege escalation",
        "allowPrivilegeEscalation",
        _any(lambda c: _context(c).get("allowPrivilegeEscalation") is not False),
    ),
    _row("5.2.7", "No containers as root", "may run as root", _may_be_root),
    _row("5.2.8", "No NET_RAW", "keep NET_RAW", _any(lambda c: not _dropped(c) & {"ALL", "NET_RAW"})),
    _row("5.2.9", "No capabilities", "keep capabilities", _any(lambda c: "ALL" not in _dropped(c))),
    Check(
        "5.2.10",
        "No Windows HostProcess containers",
        lambda facts: (
            _without("hostProcess", _windows)(facts) if any(map(_windows, own_pods(facts))) else not_here("Linux nodes")
        ),
        "N/A: nodes run Linux",
    ),
    _row(
        "5.2.11",
        "No hostPath volumes",
        "hostPath",
        lambda p: any(volume.get("hostPath") for volume in p["spec"].get("volumes") or []),
    ),
    _row(
        "5.2.12",
        "No host ports",
        "hostPort",
        _any(lambda c: any(port.get("hostPort") for port in c.get("ports") or [])),
    ),
)
