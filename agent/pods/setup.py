"""Prepares the parts of one pod: IDs, directories, cgroup, the configurations of sandbox and containers.

Each function does one thing and fails with one of the errors that the steps turn into a waiting reason and an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from agent.cgroups import swap, tree
from agent.cgroups.cgroupfs import Limits
from agent.images.manager import PresentImage
from agent.lifecycle import Kind, Start
from agent.pods import hosts_file
from agent.pods import termination_messages as messages
from agent.pods.container_environment import make_environment
from agent.pods.dependencies import PodDependencies
from agent.pods.references import ReferencesError
from agent.podspec import containers, dns, hosts
from agent.podspec.sandbox import log_directory, sandbox_config
from agent.podspec.security import AnyContainer, container_context, verify_user
from agent.volumes.container_mounts import container_devices
from agent.volumes.mounted_volume import MountedVolume
from cri.messages import ContainerConfig, LinuxContainerResources, Mount, PodSandboxConfig
from kube.api import core_v1
from kube.events import WARNING

log = logging.getLogger(__name__)
NAME_MAX = 255
"""Bytes of a file's name. The names of a pod, a namespace and a container have 379 at most."""

_LISTS = {
    Kind.MAIN: "spec.containers",
    Kind.INIT: "spec.initContainers",
    Kind.EPHEMERAL: "spec.ephemeralContainers",
}

MANY = 2000
"""Variables of a container that become messages of the runtime on the event loop: a few milliseconds."""


def field_path(kind: Kind, name: str) -> str:
    """Return the field path that events of a container carry."""
    return f"{_LISTS[kind]}{{{name}}}"


def make_sandbox_config(deps: PodDependencies, pod: core_v1.Pod, attempt: int) -> PodSandboxConfig:
    """Put together what a sandbox is made from. Raise HostnameError, UserNamespaceError."""
    config = deps.config
    resolver = dns.for_pod(pod, deps.node.resolver, config.cluster_dns, config.cluster_domain)
    return sandbox_config(
        pod,
        attempt,
        resolver=resolver,
        cluster_domain=config.cluster_domain,
        cgroup_parent=deps.cgroups.pod_parent(pod) if config.cgroups_per_qos else "",
        logs_root=config.pod_logs_dir,
        cfs_quota=config.cpu_cfs_quota,
        period_us=int(config.cpu_cfs_period * 1e6),
        ids=deps.user_namespaces.ids(pod),
        share=deps.runtime.sandbox_list.share(),
    )


def dns_warnings(deps: PodDependencies, pod: core_v1.Pod) -> list[tuple[str, str]]:
    """Return reasons and messages of the events about what the pod's resolver had to leave out."""
    config = deps.config
    return dns.warnings(pod, deps.node.resolver, config.cluster_dns, config.cluster_domain)


async def allocate_ids(deps: PodDependencies, pod: core_v1.Pod, handler: str) -> None:
    """Give a pod that has a user namespace its IDs. Raise UserNamespaceError, OSError."""
    if pod.spec.host_users is False:
        await asyncio.to_thread(deps.user_namespaces.ensure, pod, handler, deps.node.user_namespaces)


async def load_ids(deps: PodDependencies, pod: core_v1.Pod) -> None:
    """Read the IDs of a pod with a user namespace if they could not be read yet."""
    if pod.spec.host_users is False:
        await asyncio.to_thread(deps.user_namespaces.load_unread)


def pod_limits(deps: PodDependencies, pod: core_v1.Pod) -> Limits:
    """Return the limits of the pod's cgroup."""
    config = deps.config
    return tree.pod_limits(
        pod,
        cfs_quota=config.cpu_cfs_quota and not deps.managers.has_exclusive_cpus(pod.metadata.uid or ""),
        period_us=int(config.cpu_cfs_period * 1e6),
        pids=config.pod_pids_limit,
    )


async def make_folders(deps: PodDependencies, pod: core_v1.Pod) -> None:
    """Make the pod's cgroup and the folder of its logs. Raise OSError."""
    config = deps.config
    if config.cgroups_per_qos:
        await deps.cgroups.ensure_pod(pod, pod_limits(deps, pod))
    log = log_directory(config.pod_logs_dir, pod)
    await asyncio.to_thread(log.mkdir, parents=True, exist_ok=True, mode=0o755)


async def pull_secrets(deps: PodDependencies, pod: core_v1.Pod) -> list[core_v1.Secret]:
    """Return the pod's image pull secrets; missing ones are left out with an event, as upstream does."""
    if not pod.spec.image_pull_secrets:
        return []
    with contextlib.suppress(ReferencesError):  # set_up_volumes reports it
        await deps.references.ready(pod.metadata.uid or "")
    namespace = pod.metadata.namespace or ""
    found = {ref.name or "": deps.references.secret(namespace, ref.name or "") for ref in pod.spec.image_pull_secrets}
    missing = ", ".join(name for name, secret in found.items() if secret is None)
    if missing:
        text = f"Unable to retrieve some image pull secrets ({missing}); attempting to pull the image may not succeed."
        deps.recorder.event(pod, WARNING, "FailedToRetrieveImagePullSecret", text)
    return [secret for secret in found.values() if secret is not None]


async def make_container_config(
    deps: PodDependencies,
    pod: core_v1.Pod,
    container: AnyContainer,
    start: Start,
    *,
    image: PresentImage,
    pod_ips: tuple[str, ...],
    mounted: Mapping[str, MountedVolume],
    static: bool,
    target_id: str = "",
) -> ContainerConfig:
    """Put together all that a container is made from. Raise ContainerConfigError, UserNamespaceError, OSError."""
    config = deps.config
    verify_user(pod, container, image.user)
    run_options = await deps.managers.run_options(pod, container)
    env = {**run_options.env, **await make_environment(deps, pod, container, pod_ips, mounted, static=static)}
    mounts = await deps.volumes.container_mounts(pod, container, mounted, env)
    mounts += await asyncio.to_thread(_managed_mounts, deps, pod, container, pod_ips)
    ids = deps.user_namespaces.ids(pod)
    for mount in mounts if ids else ():
        # Files keep their owners on disk; the kernel shows them mapped.
        mount.uidMappings.extend(ids)
        mount.gidMappings.extend(ids)
    make = partial(
        containers.container_config,
        pod,
        container,
        start.restart_count,
        image_id=image.id,
        env=env,
        mounts=mounts,
        security=container_context(
            pod,
            container,
            seccomp_default=config.seccomp_default,
            seccomp_root=config.seccomp_profile_root,
            target_id=target_id,
            ids=ids,
            groups={volume.group for volume in mounted.values() if volume.group is not None},
        ),
        resources=make_resources(deps, pod, container, static=static),
        share=deps.runtime.container_list.share(),
    )
    made = make() if len(env) <= MANY else await asyncio.to_thread(make)
    made.devices.extend(container_devices(container, mounted))
    containers.add_run_options(made, run_options)
    return made


def may_swap(deps: PodDependencies, pod: core_v1.Pod, container: core_v1.Container, *, static: bool) -> bool:
    """Return whether a container may use swap."""
    amounts = deps.node.memory_capacity, deps.node.swap_capacity
    given = swap.limit(pod, container, deps.config.swap_behavior, *amounts, static=static)
    return deps.cgroups.fs.swap and given > 0


def make_resources(
    deps: PodDependencies, pod: core_v1.Pod, container: AnyContainer, *, static: bool
) -> LinuxContainerResources:
    """Return the limits of a container's own cgroup."""
    config, node = deps.config, deps.node
    rules = containers.ResourceRules(
        memory_capacity=node.memory_capacity,
        swap_capacity=node.swap_capacity,
        swap_behavior=config.swap_behavior,
        cfs_quota=config.cpu_cfs_quota,
        period_us=int(config.cpu_cfs_period * 1e6),
        cgroup_v2=deps.cgroups.fs.v2,
        swap_controller=deps.cgroups.fs.swap,
        single_process_oom_kill=config.single_process_oom_kill,
        huge_page_sizes=node.huge_page_sizes,
    )
    exclusive = deps.managers.has_exclusive_cpus(pod.metadata.uid or "", container.name)
    return containers.container_resources(pod, container, rules, static=static, exclusive=exclusive)


def _managed_mounts(
    deps: PodDependencies, pod: core_v1.Pod, container: AnyContainer, pod_ips: tuple[str, ...]
) -> list[Mount]:
    """Write /etc/hosts and the termination message's file, make the log folder; return the mounts."""
    folder = deps.volumes.pod_dir(pod.metadata.uid or "")
    own = {mount.mount_path.rstrip("/") for mount in container.volume_mounts}
    result = []
    (log_directory(deps.config.pod_logs_dir, pod) / container.name).mkdir(parents=True, exist_ok=True, mode=0o755)
    if "/etc/hosts" not in own and (pod_ips or pod.spec.host_network):
        path = folder / "etc-hosts"
        text = hosts.hosts_file(pod, pod_ips, deps.config.cluster_domain, deps.node.host_file)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        hosts_file.write(path, text.encode(), 0o644)
        result.append(Mount(container_path="/etc/hosts", host_path=str(path)))
    message_path = container.termination_message_path or containers.DEFAULT_MESSAGE_PATH
    if message_path.rstrip("/") not in own:
        file = messages.own_folder(folder, container.name) / secrets.token_hex(4)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        file.touch()
        file.chmod(0o666)
        result.append(Mount(container_path=message_path, host_path=str(file)))
    return result


def link_log(deps: PodDependencies, pod: core_v1.Pod, config: ContainerConfig, container_id: str) -> None:
    """Link the container's log below /var/log/containers, for log collectors."""
    metadata = pod.metadata
    folder = deps.config.container_logs_dir
    end = f"-{container_id}.log"
    name = f"{metadata.name}_{metadata.namespace}_{config.metadata.name}"[: NAME_MAX - len(end)] + end
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(log_directory(deps.config.pod_logs_dir, pod) / config.log_path)
    except OSError as error:
        log.warning("log collectors do not find the log of container %s: %s", container_id, error)


def unlink_logs(logs_dir: Path, container_ids: set[str]) -> None:
    """Remove the links of containers that are gone."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(logs_dir):
            if entry.is_symlink() and entry.name.removesuffix(".log").rpartition("-")[2] in container_ids:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
