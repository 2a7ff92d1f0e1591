"""Checks of the baseline level: each takes a pod and returns its violation, None for none."""

from __future__ import annotations

import json

from control.admission.pod_security_details import (
    Violation,
    annotations_of,
    container_contexts,
    containers_with,
    contexts,
    forbidden_additions,
    forbidden_types,
    named,
    plural,
    quoted,
    setters,
    using,
)
from control.auth.references import containers
from kube.json_object import Object

_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_OF_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_DEFAULT_CAPABILITIES = frozenset(
    "AUDIT_WRITE CHOWN DAC_OVERRIDE FOWNER FSETID KILL MKNOD NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID "
    "SYS_CHROOT".split()
)


def app_armor(pod: Object) -> Violation | None:
    bad, types = forbidden_types(pod, "appArmorProfile")
    noted = sorted(
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in annotations_of(pod).items()
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    if not bad and not noted:
        return None
    who = ([setters(bad)] if bad else []) + ([plural("annotation", len(noted))] if noted else [])
    values = types + noted
    return Violation(
        plural("forbidden AppArmor profile", len(values)),
        f"{' and '.join(who)} must not set AppArmor profile type to {quoted(values)}",
    )


def added_capabilities(pod: Object) -> Violation | None:
    detail = forbidden_additions(pod, _DEFAULT_CAPABILITIES)
    return Violation("non-default capabilities", detail) if detail else None


def host_namespaces(pod: Object) -> Violation | None:
    shared = [f"{part}=true" for part in ("hostNetwork", "hostPID", "hostIPC") if pod["spec"].get(part)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def host_path_volumes(pod: Object) -> Violation | None:
    volumes = pod["spec"].get("volumes") or ()
    bad = [volume.get("name", "") for volume in volumes if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", named("volume", bad)) if bad else None


def host_ports(pod: Object) -> Violation | None:
    bad: list[str] = []
    ports: set[str] = set()
    for container in containers(pod["spec"]):
        mine = {str(port["hostPort"]) for port in container.get("ports") or () if port.get("hostPort")}
        if mine:
            bad.append(container.get("name", ""))
            ports |= mine
    if not bad:
        return None
    # Upstream sorts the ports as text.
    shown = ", ".join(sorted(ports))
    return Violation("hostPort", f"{using('container', bad)} {plural('hostPort', len(ports))} {shown}")


def probe_hosts(pod: Object) -> Violation | None:
    bad: set[str] = set()
    hosts: set[str] = set()
    for container in containers(pod["spec"]):
        hooks = container.get("lifecycle") or {}
        actions = [container.get(probe) for probe in ("livenessProbe", "readinessProbe", "startupProbe")]
        actions += [hooks.get(hook) for hook in ("postStart", "preStop")]
        mine = {((a or {}).get(kind) or {}).get("host") or "" for a in actions for kind in ("httpGet", "tcpSocket")}
        mine -= {""}
        if mine:
            bad.add(container.get("name", ""))
            hosts |= mine
    if not bad:
        return None
    what = plural("probe or lifecycle host", len(hosts))
    return Violation("probe or lifecycle host", f"{using('container', sorted(bad))} {what} {quoted(sorted(hosts))}")


def privileged(pod: Object) -> Violation | None:
    bad = containers_with(pod, lambda context: bool(context.get("privileged")))
    if not bad:
        return None
    return Violation("privileged", f"{named('container', bad)} must not set securityContext.privileged=true")


def proc_mount(pod: Object) -> Violation | None:
    bad: list[str] = []
    types: set[str] = set()
    for name, context in container_contexts(pod):
        kind = context.get("procMount")
        if kind not in (None, "Default"):
            bad.append(name)
            types.add(kind)
    if not bad:
        return None
    what = quoted(sorted(types))
    return Violation("procMount", f"{named('container', bad)} must not set securityContext.procMount to {what}")


def selinux_options(pod: Object, allowed: frozenset[str]) -> Violation | None:
    bad: list[str] = []
    types: set[str] = set()
    parts: set[str] = set()
    for name, context in contexts(pod):
        options = context.get("seLinuxOptions") or {}
        kind = options.get("type") or ""
        wrong = {kind} - allowed - {""}
        own = {part for part in ("user", "role") if options.get(part)}
        if wrong or own:
            bad.append(name)
            types |= wrong
            parts |= own
    if not bad:
        return None
    what = [named("type", sorted(types))] if types else []
    what += [f"{part} may not be set" for part in ("user", "role") if part in parts]
    detail = f"{setters(bad)} set forbidden securityContext.seLinuxOptions: {'; '.join(what)}"
    return Violation("seLinuxOptions", detail)


def seccomp_annotations(pod: Object) -> Violation | None:
    noted = annotations_of(pod)
    keys = {_SECCOMP, *(_SECCOMP_OF_CONTAINER + c.get("name", "") for c in containers(pod["spec"]))}
    bad = sorted(
        f"{key}={json.dumps(noted[key], ensure_ascii=False)}"
        for key in keys & noted.keys()
        if noted[key] not in ("runtime/default", "docker/default") and not noted[key].startswith("localhost/")
    )
    if not bad:
        return None
    return Violation("seccompProfile", f"forbidden {plural('annotation', len(bad))} {', '.join(bad)}")


def sysctls(pod: Object, allowed: frozenset[str]) -> Violation | None:
    wanted = (pod["spec"].get("securityContext") or {}).get("sysctls") or ()
    bad = [sysctl.get("name", "") for sysctl in wanted if sysctl.get("name") not in allowed]
    return Violation("forbidden sysctls", ", ".join(bad)) if bad else None


def host_process(pod: Object) -> Violation | None:
    bad = [name for name, context in contexts(pod) if (context.get("windowsOptions") or {}).get("hostProcess")]
    if not bad:
        return None
    return Violation("hostProcess", f"{setters(bad)} must not set securityContext.windowsOptions.hostProcess=true")
