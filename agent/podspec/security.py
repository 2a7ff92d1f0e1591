"""Security contexts: merges those of pod and container, checks them, and translates them into CRI's terms.

A container's own setting wins over the pod's. Without any, a container keeps the runtime's default capabilities, may gain
privileges through setuid programs, and runs under the seccomp profile that the node's seccompDefault chooses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from agent.podspec import kernel_paths, userns
from agent.podspec.environment import ContainerConfigError
from cri.messages import (
    Capability,
    IDMapping,
    Int64Value,
    LinuxContainerSecurityContext,
    LinuxSandboxSecurityContext,
    NamespaceMode,
    NamespaceOption,
    SecurityProfile,
    SELinuxOption,
    SupplementalGroupsPolicy,
)
from kube.api import core_v1

MOST_USER_ID = (1 << 31) - 1
"""Largest user ID of a container (validation.IsValidUserID)."""
T = TypeVar("T")
AnyContainer = core_v1.Container | core_v1.EphemeralContainer


@dataclass(frozen=True, slots=True)
class ImageUser:
    """The user of an image: a number, or a name that only the image can resolve; neither is root."""

    uid: int | None = None
    name: str = ""


def container_context(
    pod: core_v1.Pod,
    container: AnyContainer,
    *,
    seccomp_default: bool,
    seccomp_root: Path,
    target_id: str = "",
    ids: Sequence[IDMapping] = (),
    groups: Collection[int] = (),
) -> LinuxContainerSecurityContext:
    """Return the container's security context. Raise ContainerConfigError for a profile that must not be used.

    `ids` is the pod's mapping of users and groups, where it has a user namespace; `groups` are those of its volumes.
    """
    own = container.security_context or core_v1.SecurityContext()
    shared = pod.spec.security_context or core_v1.PodSecurityContext()
    privileged = bool(own.privileged)
    unmasked = own.proc_mount == "Unmasked"
    context = LinuxContainerSecurityContext(
        privileged=privileged,
        readonly_rootfs=bool(own.read_only_root_filesystem),
        no_new_privs=own.allow_privilege_escalation is False,
        namespace_options=namespaces(pod, target_id, ids),
        supplemental_groups=_groups(shared, groups),
        masked_paths=[] if unmasked else kernel_paths.masked(),
        readonly_paths=[] if unmasked else kernel_paths.READ_ONLY,
        seccomp=_seccomp(
            own.seccomp_profile or shared.seccomp_profile,
            privileged=privileged,
            default=seccomp_default,
            root=seccomp_root,
        ),
    )
    if shared.supplemental_groups_policy == "Strict":
        context.supplemental_groups_policy = SupplementalGroupsPolicy.Strict
    user, group = _first(own.run_as_user, shared.run_as_user), _first(own.run_as_group, shared.run_as_group)
    if user is not None:
        context.run_as_user.CopyFrom(Int64Value(value=user))
    if group is not None:
        context.run_as_group.CopyFrom(Int64Value(value=group))
    if own.capabilities is not None and not privileged:
        context.capabilities.CopyFrom(
            Capability(
                add_capabilities=[_capability(name) for name in own.capabilities.add],
                drop_capabilities=[_capability(name) for name in own.capabilities.drop],
            )
        )
    if (selinux := own.se_linux_options or shared.se_linux_options) is not None:
        context.selinux_options.CopyFrom(_selinux(selinux))
    # The server writes annotations into containers; those of static pods it never sees (pkg/security/apparmor, GetProfile).
    profile = own.app_armor_profile or _annotated_app_armor(pod, container.name) or shared.app_armor_profile
    if profile is not None:
        context.apparmor.CopyFrom(_app_armor(profile))
    return context


def sandbox_context(pod: core_v1.Pod, ids: Sequence[IDMapping] = ()) -> LinuxSandboxSecurityContext:
    """Return the sandbox's security context: the runtime's seccomp profile, and privileged where a container is."""
    shared = pod.spec.security_context or core_v1.PodSecurityContext()
    context = LinuxSandboxSecurityContext(
        namespace_options=namespaces(pod, ids=ids),
        privileged=any(
            bool(c.security_context and c.security_context.privileged)
            for c in (*pod.spec.init_containers, *pod.spec.containers)
        ),
        supplemental_groups=_groups(shared),
        seccomp=SecurityProfile(profile_type=SecurityProfile.ProfileType.RuntimeDefault),
    )
    if shared.run_as_user is not None:
        context.run_as_user.CopyFrom(Int64Value(value=shared.run_as_user))
        if shared.run_as_group is not None:
            context.run_as_group.CopyFrom(Int64Value(value=shared.run_as_group))
    if shared.se_linux_options is not None:
        context.selinux_options.CopyFrom(_selinux(shared.se_linux_options))
    return context


def namespaces(pod: core_v1.Pod, target_id: str = "", ids: Sequence[IDMapping] = ()) -> NamespaceOption:
    """Return which namespaces are the pod's, the container's own, or the node's."""
    spec = pod.spec
    if target_id:
        pid = NamespaceMode.TARGET
    elif spec.host_pid:
        pid = NamespaceMode.NODE
    else:
        pid = NamespaceMode.POD if spec.share_process_namespace else NamespaceMode.CONTAINER
    return NamespaceOption(
        network=NamespaceMode.NODE if spec.host_network else NamespaceMode.POD,
        pid=pid,
        ipc=NamespaceMode.NODE if spec.host_ipc else NamespaceMode.POD,
        target_id=target_id,
        userns_options=userns.options(list(ids)),
    )


def must_not_be_root(pod: core_v1.Pod, container: AnyContainer) -> bool:
    """Return whether runAsNonRoot applies to the container."""
    own = container.security_context or core_v1.SecurityContext()
    shared = pod.spec.security_context or core_v1.PodSecurityContext()
    return bool(_first(own.run_as_non_root, shared.run_as_non_root))


def verify_user(pod: core_v1.Pod, container: AnyContainer, image: ImageUser) -> None:
    """Refuse a container that would run as root against runAsNonRoot. Raise ContainerConfigError."""
    if not must_not_be_root(pod, container):
        return
    own = container.security_context or core_v1.SecurityContext()
    shared = pod.spec.security_context or core_v1.PodSecurityContext()
    metadata = pod.metadata
    where = f'(pod: "{metadata.name}_{metadata.namespace}({metadata.uid})", container: {container.name})'
    user = _first(own.run_as_user, shared.run_as_user)
    if user is not None:
        if user == 0:
            raise ContainerConfigError(f"container's runAsUser breaks non-root policy {where}")
    elif image.name:
        raise ContainerConfigError(
            f"container has runAsNonRoot and image has non-numeric user ({image.name}), "
            f"cannot verify user is non-root {where}"
        )
    elif not image.uid:
        raise ContainerConfigError(f"container has runAsNonRoot and image will run as root {where}")
    elif not 0 < image.uid <= MOST_USER_ID:
        # A runtime may look up such a number as a user's name, which the image can give to root.
        raise ContainerConfigError(
            f"container has runAsNonRoot and image has an invalid user id ({image.uid}). "
            f"(Must be 1-({MOST_USER_ID})): must be between 0 and {MOST_USER_ID}, inclusive {where}"
        )


def _seccomp(profile: core_v1.SeccompProfile | None, *, privileged: bool, default: bool, root: Path) -> SecurityProfile:
    kinds = SecurityProfile.ProfileType
    if privileged:
        return SecurityProfile(profile_type=kinds.Unconfined)
    if profile is None:
        return SecurityProfile(profile_type=kinds.RuntimeDefault if default else kinds.Unconfined)
    if profile.type == "Localhost":
        name = profile.localhost_profile or ""
        if not name:
            # CVE-2023-2431: an empty name must not mean "unconfined".
            raise ContainerConfigError("localhostProfile must be set if seccompProfile type is Localhost.")
        if name.startswith("/") or ".." in name.split("/"):
            raise ContainerConfigError(f"localhostProfile must be a relative path below {root}: {name}")
        return SecurityProfile(profile_type=kinds.Localhost, localhost_ref=str(root / name))
    if profile.type == "Unconfined":
        return SecurityProfile(profile_type=kinds.Unconfined)
    return SecurityProfile(profile_type=kinds.RuntimeDefault)


def _app_armor(profile: core_v1.AppArmorProfile) -> SecurityProfile:
    kinds = SecurityProfile.ProfileType
    if profile.type == "Localhost":
        return SecurityProfile(profile_type=kinds.Localhost, localhost_ref=profile.localhost_profile or "")
    kind = kinds.Unconfined if profile.type == "Unconfined" else kinds.RuntimeDefault
    return SecurityProfile(profile_type=kind)


def _annotated_app_armor(pod: core_v1.Pod, name: str) -> core_v1.AppArmorProfile | None:
    value = pod.metadata.annotations.get(f"container.apparmor.security.beta.kubernetes.io/{name}", "")
    if value.startswith("localhost/"):
        return core_v1.AppArmorProfile(type="Localhost", localhost_profile=value.removeprefix("localhost/"))
    return {
        "runtime/default": core_v1.AppArmorProfile(type="RuntimeDefault"),
        "unconfined": core_v1.AppArmorProfile(type="Unconfined"),
    }.get(value)


def _selinux(options: core_v1.SELinuxOptions) -> SELinuxOption:
    return SELinuxOption(
        user=options.user or "", role=options.role or "", type=options.type or "", level=options.level or ""
    )


def _groups(shared: core_v1.PodSecurityContext, of_volumes: Collection[int] = ()) -> list[int]:
    groups = list(shared.supplemental_groups)
    if shared.fs_group is not None and shared.fs_group not in groups:
        groups.append(shared.fs_group)
    return groups + sorted(set(of_volumes).difference(groups))


def _capability(name: str) -> str:
    # The runtime wants names without the kernel's prefix; the API takes both.
    return name.upper().removeprefix("CAP_")


def _first(*values: T | None) -> T | None:
    return next((value for value in values if value is not None), None)
