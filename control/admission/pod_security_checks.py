"""The Pod Security Standards by version: a table of checks.

A check judges pods from a minor version on, until a later row of the same id takes its place. The restricted level has
the baseline checks too, without those that a restricted check of the same version overrides. Order, versions and
messages are upstream's (pod-security-admission/policy), since people and tests read them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import msgspec

from control.admission import pod_security_baseline as baseline
from control.admission import pod_security_restricted as restricted
from control.admission.pod_security_details import Violation, forbidden_seccomp
from kube.json_object import Object

Judge = Callable[[Object], Violation | None]


class Check(msgspec.Struct, frozen=True):
    id: str
    level: str
    since: int
    judge: Judge
    overrides: str = ""
    """The id of the baseline check whose place this one takes at the restricted level."""


def violations(pod: Object, level: str, minor: int | None = None) -> list[Violation]:
    """Return the violations of a level by a pod, in the order of upstream's messages.

    `minor` is the version of the standards (1.x), None the newest.
    """
    if level == "privileged":
        return []
    found = (check.judge(pod) for check in checks(level, NEWEST if minor is None else min(minor, NEWEST)))
    return [violation for violation in found if violation]


@cache
def checks(level: str, minor: int) -> tuple[Check, ...]:
    """Return the checks of a level at a minor version: those of baseline first, then by id."""
    selected = {check.id: check for check in CHECKS if check.since <= minor and level in (check.level, "restricted")}
    overridden = {check.overrides for check in selected.values()}
    kept = (check for check in selected.values() if check.id not in overridden)
    return tuple(sorted(kept, key=lambda check: (check.level, check.id)))


def _unless_windows(judge: Judge) -> Judge:
    """Let pods for Windows through: validation refuses the fields that the check requires."""
    return lambda pod: None if (pod["spec"].get("os") or {}).get("name") == "windows" else judge(pod)


def _unless_own_users(judge: Judge) -> Judge:
    """Let pods with a user namespace through: root in it has no power over the host (KEP-127)."""
    return lambda pod: None if pod["spec"].get("hostUsers") is False else judge(pod)


_TYPES_0 = frozenset({"container_t", "container_init_t", "container_kvm_t"})
_TYPES_31 = _TYPES_0 | {"container_engine_t"}
_SYSCTLS_0 = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_syncookies",
    }
)
_SYSCTLS_27 = _SYSCTLS_0 | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_29 = _SYSCTLS_27 | {
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
}
_SYSCTLS_32 = _SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}

# fmt: off
CHECKS = (
    Check("appArmorProfile", "baseline", 0, baseline.app_armor),
    Check("capabilities_baseline", "baseline", 0, baseline.added_capabilities),
    Check("hostNamespaces", "baseline", 0, baseline.host_namespaces),
    Check("hostPathVolumes", "baseline", 0, baseline.host_path_volumes),
    Check("hostPorts", "baseline", 0, baseline.host_ports),
    Check("hostProbesAndHostLifecycle", "baseline", 34, baseline.probe_hosts),
    Check("privileged", "baseline", 0, baseline.privileged),
    Check("procMount", "baseline", 0, baseline.proc_mount),
    Check("procMount", "baseline", 35, _unless_own_users(baseline.proc_mount)),
    Check("seLinuxOptions", "baseline", 0, partial(baseline.selinux_options, allowed=_TYPES_0)),
    Check("seLinuxOptions", "baseline", 31, partial(baseline.selinux_options, allowed=_TYPES_31)),
    Check("seccompProfile_baseline", "baseline", 0, baseline.seccomp_annotations),
    Check("seccompProfile_baseline", "baseline", 19, forbidden_seccomp),
    Check("sysctls", "baseline", 0, partial(baseline.sysctls, allowed=_SYSCTLS_0)),
    Check("sysctls", "baseline", 27, partial(baseline.sysctls, allowed=_SYSCTLS_27)),
    Check("sysctls", "baseline", 29, partial(baseline.sysctls, allowed=_SYSCTLS_29)),
    Check("sysctls", "baseline", 32, partial(baseline.sysctls, allowed=_SYSCTLS_32)),
    Check("windowsHostProcess", "baseline", 0, baseline.host_process),
    Check("allowPrivilegeEscalation", "restricted", 8, restricted.escalation),
    Check("allowPrivilegeEscalation", "restricted", 25, _unless_windows(restricted.escalation)),
    Check("capabilities_restricted", "restricted", 22, restricted.capabilities, "capabilities_baseline"),
    Check("capabilities_restricted", "restricted", 25, _unless_windows(restricted.capabilities), "capabilities_baseline"),
    Check("procMount_restricted", "restricted", 35, baseline.proc_mount, "procMount"),
    Check("restrictedVolumes", "restricted", 0, restricted.volume_types, "hostPathVolumes"),
    Check("runAsNonRoot", "restricted", 0, restricted.non_root),
    Check("runAsNonRoot", "restricted", 35, _unless_own_users(restricted.non_root)),
    Check("runAsUser", "restricted", 23, restricted.run_as_user),
    Check("runAsUser", "restricted", 35, _unless_own_users(restricted.run_as_user)),
    Check("seccompProfile_restricted", "restricted", 19, restricted.seccomp, "seccompProfile_baseline"),
    Check("seccompProfile_restricted", "restricted", 25, _unless_windows(restricted.seccomp), "seccompProfile_baseline"),
)
# fmt: on
NEWEST = max(check.since for check in CHECKS)
"""The minor version with the latest change: later ones judge as it does."""
