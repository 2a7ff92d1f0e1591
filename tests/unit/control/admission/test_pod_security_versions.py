"""Pods against the Pod Security Standards of every minor version."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from control.admission.pod_security_checks import CHECKS, checks, violations
from kube.json_object import Object

Refused = dict[str, range]
"""Reason of a refusal -> the minor versions whose standards give it."""

END = 41  # some versions beyond the newest: they are judged as the newest
ALWAYS = range(END)
POSITIONS = ("initContainers", "containers", "ephemeralContainers")
SAFE: Object = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
ANYONE = {k: v for k, v in SAFE.items() if k != "runAsNonRoot"}
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_OF = "container.seccomp.security.alpha.kubernetes.io/"


def since(minor: int) -> range:
    return range(minor, END)


def until(minor: int) -> range:
    return range(minor)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    pod: Object
    baseline: Refused = field(default_factory=dict)
    restricted: Refused = field(default_factory=dict)


def pod(context: Object | None = None, annotations: Object | None = None, **spec: Any) -> Object:
    """Return a pod that passes everywhere, with what is given in place of its parts."""
    safe = [{"name": "c", "securityContext": copy.deepcopy(SAFE if context is None else context)}]
    return {"metadata": {"name": "p", "annotations": annotations or {}}, "spec": {"containers": safe, **spec}}


def cases() -> Iterator[Case]:
    nothing: Object = {"name": "c"}
    yield Case("safe", pod())
    yield Case(
        "says nothing",
        pod(containers=[nothing]),
        {},
        {
            "allowPrivilegeEscalation != false": since(8),
            "unrestricted capabilities": since(22),
            "runAsNonRoot != true": ALWAYS,
            "seccompProfile": since(19),
        },
    )
    yield Case(
        "says nothing, for Windows",
        pod(containers=[nothing], os={"name": "windows"}),
        {},
        {
            "allowPrivilegeEscalation != false": range(8, 25),
            "unrestricted capabilities": range(22, 25),
            "runAsNonRoot != true": ALWAYS,
            "seccompProfile": range(19, 25),
        },
    )
    yield Case(
        "SYS_ADMIN for Windows",
        pod(SAFE | {"capabilities": {"add": ["SYS_ADMIN"]}}, os={"name": "windows"}),
        {"non-default capabilities": ALWAYS},
        {"non-default capabilities": until(22), "unrestricted capabilities": range(22, 25)},
    )
    yield Case(
        "seccomp Unconfined for Windows",
        pod(SAFE | {"seccompProfile": {"type": "Unconfined"}}, os={"name": "windows"}),
        {"seccompProfile": since(19)},
        {"seccompProfile": range(19, 25)},
    )
    for where in ("hostNetwork", "hostPID", "hostIPC"):
        yield _both(where, pod(**{where: True}), {"host namespaces": ALWAYS})
        yield Case(f"no {where}", pod(**{where: False}))
    yield from _user_namespaces()
    yield from _volumes()
    yield from _sysctls()
    yield from _annotations()
    for position in POSITIONS:
        yield from _containers(position)
    yield from _pod_contexts()


def _both(name: str, made: Object, refused: Refused) -> Case:
    return Case(name, made, refused, refused)


def _user_namespaces() -> Iterator[Case]:
    own: Object = {"hostUsers": False}
    unmasked = SAFE | {"procMount": "Unmasked"}
    yield Case("Unmasked in a user namespace", pod(unmasked, **own), {"procMount": until(35)}, {"procMount": ALWAYS})
    yield _both("Unmasked with the host's users", pod(unmasked, hostUsers=True), {"procMount": ALWAYS})
    root = {"runAsNonRoot != true": until(35), "runAsUser=0": range(23, 35)}
    yield Case("root in a user namespace", pod(ANYONE | {"runAsUser": 0}, **own), {}, root)
    for value in (None, False):
        says = ANYONE if value is None else ANYONE | {"runAsNonRoot": value}
        yield Case(
            f"runAsNonRoot {value} in a user namespace", pod(says, **own), {}, {"runAsNonRoot != true": until(35)}
        )
        yield Case(f"runAsNonRoot {value}", pod(says), {}, {"runAsNonRoot != true": ALWAYS})
    in_pod = {"runAsNonRoot": False, "runAsUser": 0}
    yield Case("root of the pod in a user namespace", pod(ANYONE, securityContext=in_pod, **own), {}, root)


def _volumes() -> Iterator[Case]:
    free = "configMap csi downwardAPI emptyDir ephemeral image persistentVolumeClaim projected secret"
    for kind in free.split():
        yield Case(f"volume {kind}", pod(volumes=[{"name": "v", kind: {}}]))
    restricted = (
        "gcePersistentDisk awsElasticBlockStore gitRepo nfs iscsi glusterfs rbd flexVolume cinder cephfs flocker fc "
        "azureFile vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO storageos"
    )
    for kind in restricted.split():
        made = pod(volumes=[{"name": "ok", "emptyDir": {}}, {"name": "v", kind: {}}])
        yield Case(f"volume {kind}", made, {}, {"restricted volume types": ALWAYS})
    yield Case(
        "volume hostPath",
        pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
        {"hostPath volumes": ALWAYS},
        {"restricted volume types": ALWAYS},
    )


def _sysctls() -> Iterator[Case]:
    first = {
        0: "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies net.ipv4.ping_group_range "
        "net.ipv4.ip_unprivileged_port_start",
        27: "net.ipv4.ip_local_reserved_ports",
        29: "net.ipv4.tcp_keepalive_time net.ipv4.tcp_fin_timeout net.ipv4.tcp_keepalive_intvl "
        "net.ipv4.tcp_keepalive_probes",
        32: "net.ipv4.tcp_rmem net.ipv4.tcp_wmem",
        END: "kernel.msgmax net.core.somaxconn",
    }
    for minor, names in first.items():
        for name in names.split():
            made = pod(securityContext={"sysctls": [{"name": name, "value": "1"}]})
            yield _both(f"sysctl {name}", made, {"forbidden sysctls": until(minor)})


def _annotations() -> Iterator[Case]:
    for value in ("runtime/default", "localhost/x", ""):
        yield Case(f"AppArmor annotation {value!r}", pod(annotations={f"{APP_ARMOR}c": value}))
    made = pod(annotations={f"{APP_ARMOR}c": "unconfined"})
    yield _both("AppArmor annotation unconfined", made, {"forbidden AppArmor profile": ALWAYS})
    for key in (SECCOMP, f"{SECCOMP_OF}c"):
        for value in ("runtime/default", "docker/default", "localhost/x"):
            yield Case(f"{key} {value}", pod(annotations={key: value}))
        for value in ("unconfined", ""):
            yield _both(f"{key} {value!r}", pod(annotations={key: value}), {"seccompProfile": until(19)})
    yield Case("seccomp annotation of no container", pod(annotations={f"{SECCOMP_OF}other": "unconfined"}))


def _contexts() -> Iterator[tuple[str, Object, Refused, Refused]]:
    """Yield security contexts that a pod and a container can have alike."""
    for name, part, bad, good in (
        ("AppArmor", "appArmorProfile", ("Unconfined",), ("RuntimeDefault", "Localhost")),
        ("seccomp", "seccompProfile", ("Unconfined",), ("RuntimeDefault", "Localhost")),
    ):
        refused: Refused = {"forbidden AppArmor profile": ALWAYS}
        if name == "seccomp":
            refused = {"seccompProfile": since(19)}
        for kind in bad:
            yield f"{name} {kind}", {part: {"type": kind}}, refused, refused
        for kind in good:
            yield f"{name} {kind}", {part: {"type": kind}}, {}, {}
    for kind in ("", "container_t", "container_init_t", "container_kvm_t"):
        yield f"SELinux {kind}", {"seLinuxOptions": {"type": kind, "level": "s0"}}, {}, {}
    for options, when in (
        ({"type": "container_engine_t"}, until(31)),
        ({"type": "spc_t"}, ALWAYS),
        ({"user": "system_u"}, ALWAYS),
        ({"role": "sysadm_r"}, ALWAYS),
    ):
        yield f"SELinux {options}", {"seLinuxOptions": options}, {"seLinuxOptions": when}, {"seLinuxOptions": when}
    host = {"hostProcess": ALWAYS}
    yield "hostProcess", {"windowsOptions": {"hostProcess": True}}, host, host
    yield "no hostProcess", {"windowsOptions": {"hostProcess": False}}, {}, {}
    yield "runAsUser 0", {"runAsUser": 0}, {}, {"runAsUser=0": since(23)}
    yield "runAsUser 1", {"runAsUser": 1}, {}, {}
    yield "runAsNonRoot false", {"runAsNonRoot": False}, {}, {"runAsNonRoot != true": ALWAYS}


def _pod_contexts() -> Iterator[Case]:
    for name, context, baseline, restricted in _contexts():
        yield Case(f"pod: {name}", pod(securityContext=context), baseline, restricted)
    quiet = {k: SAFE[k] for k in ("allowPrivilegeEscalation", "capabilities")}
    says = {"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}}
    yield Case("pod says it for its containers", pod(quiet, securityContext=says))


def _containers(position: str) -> Iterator[Case]:
    def case(name: str, more: Object, baseline: Refused, restricted: Refused) -> Case:
        made = pod()
        second = {"name": "d", "securityContext": copy.deepcopy(SAFE), **more}
        made["spec"].setdefault(position, []).append(second)
        return Case(f"{position}: {name}", made, baseline, restricted)

    def of(name: str, context: Object, baseline: Refused, restricted: Refused) -> Case:
        return case(name, {"securityContext": SAFE | context}, baseline, restricted)

    for name, context, baseline, restricted in _contexts():
        yield of(name, context, baseline, restricted)
    yield of("privileged", {"privileged": True}, {"privileged": ALWAYS}, {"privileged": ALWAYS})
    yield of("not privileged", {"privileged": False}, {}, {})
    yield of("Unmasked", {"procMount": "Unmasked"}, {"procMount": ALWAYS}, {"procMount": ALWAYS})
    yield of("procMount Default", {"procMount": "Default"}, {}, {})
    escalation = {"allowPrivilegeEscalation != false": since(8)}
    yield of("escalation", {"allowPrivilegeEscalation": True}, {}, escalation)
    yield of("escalation unsaid", {"allowPrivilegeEscalation": None}, {}, escalation)
    dropped = {"unrestricted capabilities": since(22)}
    yield of("not all dropped", {"capabilities": {"drop": ["CHOWN"]}}, {}, dropped)
    yield of("nothing dropped", {"capabilities": None}, {}, dropped)
    for (
        name
    ) in "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD SETFCAP SETGID SETPCAP SETUID SYS_CHROOT".split():
        yield of(f"adds {name}", {"capabilities": {"drop": ["ALL"], "add": [name]}}, {}, dropped)
    yield of("adds NET_BIND_SERVICE", {"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}, {}, {})
    for name in ("SYS_ADMIN", "NET_RAW", "ALL"):
        context = {"capabilities": {"drop": ["ALL"], "add": [name]}}
        always = {"non-default capabilities": ALWAYS}
        yield of(f"adds {name}", context, always, {"non-default capabilities": until(22)} | dropped)
    ports = {"hostPort": ALWAYS}
    yield case("hostPort", {"ports": [{"containerPort": 1, "hostPort": 1}]}, ports, ports)
    yield case("hostPort 0", {"ports": [{"containerPort": 1, "hostPort": 0}]}, {}, {})
    hosts = {"probe or lifecycle host": since(34)}
    for kind in ("httpGet", "tcpSocket"):
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            yield case(f"{probe} {kind}", {probe: {kind: {"port": 1, "host": "::1"}}}, hosts, hosts)
            yield case(f"{probe} {kind} of the pod", {probe: {kind: {"port": 1, "host": ""}}}, {}, {})
        for hook in ("postStart", "preStop"):
            yield case(f"{hook} {kind}", {"lifecycle": {hook: {kind: {"port": 1, "host": "h"}}}}, hosts, hosts)
            yield case(f"{hook} {kind} of the pod", {"lifecycle": {hook: {kind: {"port": 1}}}}, {}, {})


CASES = list(cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_each_version_refuses_what_its_standards_forbid(case: Case, level: str) -> None:
    refused: Refused = getattr(case, level)
    wanted = {minor: sorted(reason for reason, when in refused.items() if minor in when) for minor in ALWAYS}
    found = {minor: sorted(v.reason for v in violations(case.pod, level, minor)) for minor in ALWAYS}
    assert found == wanted
    assert sorted(v.reason for v in violations(case.pod, level)) == wanted[END - 1]
    assert violations(case.pod, "privileged", 30) == []


def _named(name: str, **context: Any) -> Object:
    return {"name": name, "securityContext": SAFE | context}


@pytest.mark.parametrize(
    "made, minor, message",
    [
        (
            pod(
                containers=[_named("a", appArmorProfile={"type": "Unconfined"})],
                annotations={f"{APP_ARMOR}b": "unconfined", f"{APP_ARMOR}a": "x"},
                securityContext={"appArmorProfile": {"type": "Unconfined"}},
            ),
            36,
            'forbidden AppArmor profiles (pod and container "a" and annotations must not set AppArmor profile type to '
            f'"Unconfined", "{APP_ARMOR}a="x"", "{APP_ARMOR}b="unconfined"")',
        ),
        (
            pod(annotations={f"{APP_ARMOR}c": "unconfined"}),
            36,
            f'forbidden AppArmor profile (annotation must not set AppArmor profile type to "{APP_ARMOR}c="unconfined"")',
        ),
        (
            pod(annotations={SECCOMP: "unconfined", f"{SECCOMP_OF}c": "x"}),
            18,
            f'seccompProfile (forbidden annotations {SECCOMP_OF}c="x", {SECCOMP}="unconfined")',
        ),
        (
            pod(containers=[{"name": "b", "ports": [{"hostPort": 90}, {"hostPort": 8080}]}]),
            36,
            'hostPort (container "b" uses hostPorts 8080, 90)',
        ),
        (
            pod(
                containers=[_named(n, seccompProfile={"type": "Unconfined"}) for n in ("b", "a")],
                securityContext={"seccompProfile": {"type": "Unconfined"}},
            ),
            36,
            'seccompProfile (pod and containers "b", "a" must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
    ],
)
def test_details_are_upstreams(made: Object, minor: int, message: str) -> None:
    assert [f"{v.reason} ({v.detail})" for v in violations(made, "baseline", minor)] == [message]


def test_a_bad_container_is_found_beside_a_good_one_of_its_name() -> None:
    made = pod(containers=[_named("c", seccompProfile={"type": "Unconfined"}), _named("c")])
    assert [v.reason for v in violations(made, "restricted")] == ["seccompProfile"]


def test_restricted_refuses_whatever_baseline_refuses() -> None:
    """An overriding check is at least as strict, but for pods for Windows, which validation holds to less."""
    for case in CASES:
        if case.pod["spec"].get("os"):
            continue
        for minor in ALWAYS:
            if violations(case.pod, "baseline", minor):
                assert violations(case.pod, "restricted", minor), (case.name, minor)


def test_the_rows_of_a_check_follow_each_other_and_replace_baseline_alone() -> None:
    levels = {check.id: check.level for check in CHECKS}
    for before, after in itertools.pairwise(CHECKS):
        assert (before.level, before.id, before.since) < (after.level, after.id, after.since)
    for check in CHECKS:
        assert check.level == levels[check.id]
        assert not check.overrides or (check.level, levels[check.overrides]) == ("restricted", "baseline")


def test_restricted_has_the_checks_of_each_version() -> None:
    def ids(minor: int) -> list[str]:
        return [check.id for check in checks("restricted", minor)]

    first = ["appArmorProfile", "capabilities_baseline", "hostNamespaces", "hostPorts", "privileged", "procMount"]
    first += ["seLinuxOptions", "seccompProfile_baseline", "sysctls", "windowsHostProcess"]
    assert ids(0) == [*first, "restrictedVolumes", "runAsNonRoot"]
    newest = ["appArmorProfile", "hostNamespaces", "hostPorts", "hostProbesAndHostLifecycle", "privileged"]
    newest += ["seLinuxOptions", "sysctls", "windowsHostProcess", "allowPrivilegeEscalation"]
    newest += ["capabilities_restricted", "procMount_restricted", "restrictedVolumes", "runAsNonRoot", "runAsUser"]
    assert ids(35) == [*newest, "seccompProfile_restricted"]
