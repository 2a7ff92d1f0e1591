"""The Pod Security Standards as functions: each says what a pod does that its level forbids.

A check takes the pod and returns the detail of the violation, "" for none. The restricted level has the baseline checks
too, except where a stricter one of its own takes their place. Order and wording are upstream's
(pod-security-admission/policy), since people and tests read the messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from control.auth.references import containers

Object = dict[str, Any]
Check = Callable[[Object], str]


@dataclass(frozen=True, slots=True)
class Violation:
    """What a pod may not do, and where it does so."""

    reason: str
    detail: str


def violations(pod: Object, level: str, minor: int | None = None) -> list[Violation]:
    """Return what a pod breaks of a level, in the order of upstream's messages.

    `minor` is the version of the standards (1.x) that is meant, None the newest: checks came one after the other.
    """
    if level == "privileged":
        return []
    checks = _BASELINE if level == "baseline" else _RESTRICTED
    found = ((reason, check(pod)) for reason, check in checks if minor is None or minor >= _SINCE.get(check, 0))
    return [Violation(reason, detail) for reason, detail in found if detail]


# -- words ------------------------------------------------------------------------------------------------------------
def _names(kind: str, names: Iterable[str]) -> str:
    found = list(names)
    return f"{kind}{'s' if len(found) > 1 else ''} " + _quoted(found)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(json.dumps(name, ensure_ascii=False) for name in names)


def _bad_containers(pod: Object, bad: Callable[[Object], bool]) -> list[str]:
    return [c.get("name", "") for c in containers(pod["spec"]) if bad(c.get("securityContext") or {})]


def _contexts(pod: Object) -> Iterator[tuple[str, Object]]:
    """Yield the security contexts of the pod ("") and of each container, by container name."""
    yield "", pod["spec"].get("securityContext") or {}
    for container in containers(pod["spec"]):
        yield container.get("name", ""), container.get("securityContext") or {}


def _setters(names: Iterable[str]) -> str:
    """Name who set something: the pod, containers, or both."""
    found = list(names)
    inside = [n for n in found if n]
    parts = (["pod"] if "" in found else []) + ([_names("container", inside)] if inside else [])
    return " and ".join(parts)


def _own_users(pod: Object) -> bool:
    """Say whether the pod has a user namespace, in which being root is no power over the host (KEP-127)."""
    return pod["spec"].get("hostUsers") is False


def _is_windows(pod: Object) -> bool:
    return bool((pod["spec"].get("os") or {}).get("name") == "windows")


# -- baseline ---------------------------------------------------------------------------------------------------------
def _app_armor(pod: Object) -> str:
    bad: dict[str, list[str]] = {}
    for name, context in _contexts(pod):
        kind = (context.get("appArmorProfile") or {}).get("type")
        if kind not in (None, "RuntimeDefault", "Localhost"):
            bad.setdefault(kind, []).append(name)
    details = [
        f"{_setters(names)} must not set securityContext.appArmorProfile.type to {json.dumps(kind)}"
        for kind, names in bad.items()
    ]
    for key, value in sorted((pod.get("metadata", {}).get("annotations") or {}).items()):
        if key.startswith("container.apparmor.security.beta.kubernetes.io/"):
            if value not in ("", "runtime/default") and not value.startswith("localhost/"):
                details.append(f"annotation {json.dumps(f'{key}={value}')}")
    return ", ".join(details)


_DEFAULT_CAPABILITIES = frozenset(
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID "
    "SYS_CHROOT".split()
)


def _added(pod: Object, allowed: frozenset[str]) -> str:
    bad: list[str] = []
    names: set[str] = set()
    for container in containers(pod["spec"]):
        more = ((container.get("securityContext") or {}).get("capabilities") or {}).get("add") or ()
        extra = set(more) - allowed
        if extra:
            bad.append(container.get("name", ""))
            names |= extra
    if not bad:
        return ""
    return f"{_names('container', bad)} must not include {_quoted(sorted(names))} in securityContext.capabilities.add"


def _capabilities_baseline(pod: Object) -> str:
    return _added(pod, _DEFAULT_CAPABILITIES)


def _host_namespaces(pod: Object) -> str:
    return ", ".join(f"{f}=true" for f in ("hostNetwork", "hostPID", "hostIPC") if pod["spec"].get(f))


def _host_path(pod: Object) -> str:
    bad = [v.get("name", "") for v in pod["spec"].get("volumes") or () if "hostPath" in v]
    return _names("volume", bad) if bad else ""


def _host_ports(pod: Object) -> str:
    bad: list[str] = []
    ports: set[int] = set()
    for container in containers(pod["spec"]):
        mine = {p["hostPort"] for p in container.get("ports") or () if p.get("hostPort")}
        if mine:
            bad.append(container.get("name", ""))
            ports |= mine
    if not bad:
        return ""
    use = "use" if len(bad) > 1 else "uses"
    return f"{_names('container', bad)} {use} hostPort{'s' if len(ports) > 1 else ''} " + ", ".join(
        map(str, sorted(ports))
    )


def _host_probes(pod: Object) -> str:
    hosts: set[str] = set()
    bad: list[str] = []
    for container in containers(pod["spec"]):
        actions = [container.get(p) or {} for p in ("livenessProbe", "readinessProbe", "startupProbe")]
        actions += [h or {} for h in (container.get("lifecycle") or {}).values() if isinstance(h, dict)]
        mine = {(a.get(k) or {}).get("host", "") for a in actions for k in ("httpGet", "tcpSocket")} - {""}
        if mine:
            bad.append(container.get("name", ""))
            hosts |= mine
    if not bad:
        return ""
    use = "use" if len(bad) > 1 else "uses"
    return f"{_names('container', bad)} {use} probe or lifecycle host{'s' if len(hosts) > 1 else ''} " + _quoted(
        sorted(hosts)
    )


def _privileged(pod: Object) -> str:
    bad = _bad_containers(pod, lambda c: bool(c.get("privileged")))
    return f"{_names('container', bad)} must not set securityContext.privileged=true" if bad else ""


def _proc_mount(pod: Object) -> str:
    if _own_users(pod):
        return ""
    bad = _bad_containers(pod, lambda c: c.get("procMount") not in (None, "Default"))
    return f'{_names("container", bad)} must not set securityContext.procMount to "Unmasked"' if bad else ""


_SELINUX_TYPES = ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")


def _selinux(pod: Object) -> str:
    bad: list[str] = []
    types: set[str] = set()
    parts: list[str] = []
    for name, context in _contexts(pod):
        options = context.get("seLinuxOptions") or {}
        wrong = options.get("type", "") if options.get("type", "") not in _SELINUX_TYPES else ""
        set_ = [part for part in ("user", "role") if options.get(part)]
        if wrong or set_:
            bad.append(name)
            types |= {wrong} - {""}
            parts += [part for part in set_ if part not in parts]
    if not bad:
        return ""
    what = [_names("type", sorted(types))] if types else []
    what += [f"{part} may not be set" for part in ("user", "role") if part in parts]
    return f"{_setters(bad)} set forbidden securityContext.seLinuxOptions: {'; '.join(what)}"


def _seccomp_baseline(pod: Object) -> str:
    bad = [n for n, c in _contexts(pod) if (c.get("seccompProfile") or {}).get("type") == "Unconfined"]
    return f'{_setters(bad)} must not set securityContext.seccompProfile.type to "Unconfined"' if bad else ""


_SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    }
)


def _sysctls(pod: Object) -> str:
    wanted = (pod["spec"].get("securityContext") or {}).get("sysctls") or ()
    return ", ".join(s.get("name", "") for s in wanted if s.get("name") not in _SAFE_SYSCTLS)


def _host_process(pod: Object) -> str:
    bad = [n for n, c in _contexts(pod) if (c.get("windowsOptions") or {}).get("hostProcess")]
    return f"{_setters(bad)} must not set securityContext.windowsOptions.hostProcess=true" if bad else ""


# -- restricted -------------------------------------------------------------------------------------------------------
def _escalation(pod: Object) -> str:
    if _is_windows(pod):
        return ""
    bad = _bad_containers(pod, lambda c: c.get("allowPrivilegeEscalation") is not False)
    return f"{_names('container', bad)} must set securityContext.allowPrivilegeEscalation=false" if bad else ""


def _capabilities_restricted(pod: Object) -> str:
    if _is_windows(pod):
        return ""
    lacking = _bad_containers(pod, lambda c: "ALL" not in ((c.get("capabilities") or {}).get("drop") or ()))
    details = [f'{_names("container", lacking)} must set securityContext.capabilities.drop=["ALL"]'] if lacking else []
    added = _added(pod, frozenset({"NET_BIND_SERVICE"}))
    return "; ".join([*details, *([added] if added else [])])


_FREE_VOLUMES = frozenset(
    "configMap csi downwardAPI emptyDir ephemeral image persistentVolumeClaim projected secret".split()
)


def _restricted_volumes(pod: Object) -> str:
    bad: list[str] = []
    kinds: set[str] = set()
    for volume in pod["spec"].get("volumes") or ():
        extra = volume.keys() - _FREE_VOLUMES - {"name"}
        if extra:
            bad.append(volume.get("name", ""))
            kinds |= extra
    if not bad:
        return ""
    use = "use" if len(bad) > 1 else "uses"
    plural = "s" if len(kinds) > 1 else ""
    return f"{_names('volume', bad)} {use} restricted volume type{plural} {_quoted(sorted(kinds))}"


def _non_root(pod: Object) -> str:
    if _own_users(pod):
        return ""
    pod_says = (pod["spec"].get("securityContext") or {}).get("runAsNonRoot")
    wrong = _bad_containers(pod, lambda c: c.get("runAsNonRoot") is False)
    if pod_says is False:
        wrong.insert(0, "")
    if wrong:
        return f"{_setters(wrong)} must not set securityContext.runAsNonRoot=false"
    if pod_says:
        return ""
    silent = _bad_containers(pod, lambda c: c.get("runAsNonRoot") is None)
    return f"pod or {_names('container', silent)} must set securityContext.runAsNonRoot=true" if silent else ""


def _run_as_user(pod: Object) -> str:
    if _own_users(pod):
        return ""
    bad = [name for name, context in _contexts(pod) if context.get("runAsUser") == 0]
    return f"{_setters(bad)} must not set runAsUser=0" if bad else ""


_CONFINED = ("RuntimeDefault", "Localhost")


def _seccomp_restricted(pod: Object) -> str:
    if _is_windows(pod):
        return ""
    said = {name: (context.get("seccompProfile") or {}).get("type") for name, context in _contexts(pod)}
    wrong = [name for name, kind in said.items() if kind is not None and kind not in _CONFINED]
    if wrong:
        shown = _quoted(sorted({str(said[name]) for name in wrong}))
        return f"{_setters(wrong)} must not set securityContext.seccompProfile.type to {shown}"
    if said[""] in _CONFINED:
        return ""
    silent = [name for name, kind in said.items() if name and kind is None]
    if not silent:
        return ""
    wanted = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return f"pod or {_names('container', silent)} must set {wanted}"


_BASELINE: tuple[tuple[str, Check], ...] = (
    ("forbidden AppArmor profile", _app_armor),
    ("non-default capabilities", _capabilities_baseline),
    ("host namespaces", _host_namespaces),
    ("hostPath volumes", _host_path),
    ("hostPort", _host_ports),
    ("probe or lifecycle host", _host_probes),
    ("privileged", _privileged),
    ("procMount", _proc_mount),
    ("seLinuxOptions", _selinux),
    ("seccompProfile", _seccomp_baseline),
    ("forbidden sysctls", _sysctls),
    ("hostProcess", _host_process),
)
_SINCE: dict[Check, int] = {
    _host_probes: 34,
    _escalation: 8,
    _capabilities_restricted: 22,
    _run_as_user: 23,
    _seccomp_restricted: 19,
}
"""The minor version that brought a check, where it was not there from the start."""
_REPLACED = (_capabilities_baseline, _host_path, _seccomp_baseline)
_RESTRICTED: tuple[tuple[str, Check], ...] = (
    *((reason, check) for reason, check in _BASELINE if check not in _REPLACED),
    ("allowPrivilegeEscalation != false", _escalation),
    ("unrestricted capabilities", _capabilities_restricted),
    ("restricted volume types", _restricted_volumes),
    ("runAsNonRoot != true", _non_root),
    ("runAsUser=0", _run_as_user),
    ("seccompProfile", _seccomp_restricted),
)
