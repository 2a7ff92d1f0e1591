"""`wherry reset`: remove the cluster from this machine so that nothing of it is left.

Order matters: pods first, while containerd can still take them down properly; then the daemons; then what they left in
the kernel; files last. Every step only touches what is ours by name or path, and continues where there is nothing to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from agent.files.walk import remove
from agent.volumes.mounts import is_bound_to_itself, mount_points, unmount
from cri.client import Client as RuntimeClient
from kube import process_files
from kube.process import CommandError
from wherry import cni_plugins, daemons, host_port_rules, other_installations, registries, units, user_kubeconfig
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.pod_processes import POD_CGROUPS, in_pod
from wherry.progress import step
from wherry.settings import Settings
from wherry.terminal import errors, styled

if TYPE_CHECKING:
    from netproxy.config import ProxyConfig

SANDBOXES_AT_ONCE = 4
_PROC = Path("/proc")
START_SECONDS, REMOVE_SECONDS = 30.0, 120.0


async def reset(settings: Settings, *, keep_data: bool = False) -> None:
    """Take everything down and away; with `keep_data` certificates and database stay."""
    with step("stop control plane, agent and proxy"):
        await daemons.stop(settings)
    try:
        with step("remove all pods"):
            await remove_pods(settings)
    except WherryError as error:
        # Going on by force leaves less behind than stopping half-way.
        errors.print(styled("  ", (str(error), "yellow"), ": their processes are killed"))
    if settings.own_containerd:
        _end_processes(settings)
    with step("take rules, routes and links away"):
        await _clean_network(settings)
    with step("remove files"):
        cni_plugins.remove_links(settings.layout)
        _unmount(settings)
        if units.uses_systemd(settings):
            await units.remove_slices()
        await _remove_cgroups(settings)
        _remove_files(settings, keep_data=keep_data)
        if units.uses_systemd(settings):
            await units.remove()


async def remove_pods(settings: Settings) -> None:
    """Stop and remove every pod sandbox and its containers through the container runtime."""
    from cri.errors import CRIError

    started = None
    layout = settings.layout
    if settings.own_containerd:
        if not layout.containerd_root.exists():
            return
        started = await asyncio.create_subprocess_exec(
            "containerd",
            "--config",
            str(layout.containerd_configuration),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    try:
        limit = asyncio.Semaphore(SANDBOXES_AT_ONCE)

        async with RuntimeClient(settings.runtime) as client:

            async def remove(sandbox: str) -> None:
                async with limit:
                    await client.runtime.stop_pod_sandbox(sandbox)
                    await client.runtime.remove_pod_sandbox(sandbox)

            try:
                sandboxes = await _sandboxes(client)
                async with asyncio.timeout(REMOVE_SECONDS), asyncio.TaskGroup() as group:
                    for sandbox in sandboxes:
                        group.create_task(remove(sandbox), name=f"remove sandbox {sandbox[:12]}")
            except* (CRIError, TimeoutError) as problems:
                raise WherryError(f"pods cannot be removed: {problems.exceptions[0]}") from problems
    finally:
        if started is not None:
            started.terminate()
            await started.wait()


async def _sandboxes(client: RuntimeClient) -> list[str]:
    """List the pod sandboxes; a containerd that has just started answers only once it has read its state."""
    from cri.errors import UnavailableError

    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                await client.ready()
                return [sandbox.id for sandbox in await client.runtime.list_pod_sandboxes()]
            except UnavailableError:
                await asyncio.sleep(0.1)


def _end_processes(settings: Settings) -> None:
    """End what outlived its pod: processes in our pods' cgroups, and shims that name our socket on their command line."""
    socket = str(settings.layout.containerd_socket).encode()
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if in_pod(folder, settings) or _is_shim(folder, socket):
                os.kill(int(folder.name), signal.SIGKILL)


def _is_shim(process: Path, socket: bytes) -> bool:
    """Return whether a process is a shim of the containerd at a socket. Raise OSError, ValueError."""
    if process_files.name(process) != b"containerd-shim":  # the kernel keeps 15 bytes of the name
        return False
    if {*process_files.users(process)} != {b"0"}:
        return False  # a name that any account can choose, and a command line whose reading it may block
    arguments = process_files.command_line(process).split(b"\0")
    return arguments[0].endswith(b"containerd-shim-runc-v2") and socket in arguments


async def _clean_network(settings: Settings) -> None:
    from agent.node import loopback_guard
    from netproxy.cleanup import cleanup
    from wherry.proxy_settings import proxy_config

    if others := other_installations.prefixes(settings):  # after a join that failed beside it
        errors.print(
            f"  they stay: the installation {others[0]} has the same in this network namespace", soft_wrap=True
        )
        return
    if settings.layout.proxy_configuration.exists():
        await cleanup(proxy_config(settings, _proxy_configuration(settings)), everything=True)
    await loopback_guard.remove()
    await host_port_rules.remove()


def _proxy_configuration(settings: Settings) -> ProxyConfig:
    """Return the proxy's configuration, as `wherry up` writes it if the file is damaged."""
    from netproxy import configuration_file
    from netproxy.errors import ConfigError
    from wherry import configuration

    try:
        return configuration_file.load(settings.layout.proxy_configuration)
    except (ConfigError, UnicodeDecodeError):
        written = configuration.proxy_configuration(settings, configuration.shared_proxy(settings))
        return configuration_file.parse(written)


def _unmount(settings: Settings) -> None:
    """Unmount what is mounted below our folders. Raise WherryError if something stays: its files are not ours."""

    def below() -> list[str]:
        # A folder may itself be a disk of the machine's.
        return [point for folder in _folders(settings) for point in mount_points(folder) if point != str(folder)]

    for point in below():
        with contextlib.suppress(OSError):
            unmount(point)
    if is_bound_to_itself(settings.layout.kubelet):
        with contextlib.suppress(OSError):
            unmount(settings.layout.kubelet)  # the agent's own, to share what is mounted below
    if left := below():
        raise WherryError(f"still mounted: {', '.join(left)}; run umount on each, then wherry reset again")


async def _remove_cgroups(settings: Settings) -> None:
    top = settings.layout.cgroup.strip("/")
    mount = Path("/sys/fs/cgroup")
    # With cgroup v2 the mount is the one tree, with v1 each folder in it is one.
    for tree in [mount, *mount.glob("*")]:
        for folder in [tree / top] if top else [tree / name for name in POD_CGROUPS]:
            for inner, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(inner)


def _folders(settings: Settings) -> list[Path]:
    layout = settings.layout
    return [layout.run, layout.kubelet, layout.containerd_root, layout.state]


def _remove_files(settings: Settings, *, keep_data: bool) -> None:
    from netproxy.podnet.cni import NETWORK

    layout = settings.layout
    if not keep_data:
        user_kubeconfig.remove(settings)
    doomed = [layout.run, layout.pod_logs, layout.container_logs, layout.logs, layout.containerd_root]
    # What claims hold below the agent's folder is data.
    kept = [layout.kubelet / "local-path"] if keep_data else []
    doomed += [entry for entry in layout.kubelet.glob("*") if entry not in kept]
    doomed.append(layout.cni_state / NETWORK)
    if not keep_data:
        doomed += [layout.kubelet, layout.state, *_own_configuration(layout)]
    for path in doomed:
        with contextlib.suppress(OSError):
            remove(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    with contextlib.suppress(OSError):  # what the administrator wrote stays
        layout.etc.rmdir()
    with contextlib.suppress(CommandError):
        if settings.prefix != "/":
            _remove_empty_parents(settings)


def _own_configuration(layout: Layout) -> list[Path]:
    """Remove Wherry's files of image registries, and return the rest to remove of the configuration.

    The configuration file and other files of registries are the administrator's; a join that failed has read them.
    """
    with contextlib.suppress(OSError, WherryError):
        registries.write(layout.registries, {})
        (layout.registries / registries.SETTINGS).unlink(missing_ok=True)
        layout.registries.rmdir()
    return [entry for entry in layout.etc.glob("*") if entry not in (layout.config, layout.registries)]


def _remove_empty_parents(settings: Settings) -> None:
    for folder, _, _ in os.walk(settings.layout.prefix, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
