"""A pod network that is not Wherry's: checks of the machine, the change from one to the other, and messages about it.

Addresses, routes and policies of pods belong to the network that a pod was started with, and only its plugins can remove them,
by the configuration that is present. So a machine changes its network without pods: they are removed first, then the present
configuration, and the agent starts them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from wherry import cni_plugins
from wherry.errors import WherryError
from wherry.finding import Finding
from wherry.progress import step
from wherry.settings import Settings
from wherry.terminal import console

SUFFIXES = (".conf", ".conflist", ".json")
"""Names that libcni reads; the first file by name is used."""
DISABLED = ".disabled"
_MOST_BYTES = 1 << 20
"""Limit of a CNI configuration that is read."""
FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def findings(settings: Settings, *, running: bool = False) -> Iterator[Finding]:
    """Check what decides which network pods get; with `running`, a required network is expected to be installed."""
    folder = settings.layout.cni_configuration
    if settings.own_pod_network:
        for path in others_first(settings):
            what = f"{path} comes before {own_file()}: pods get its network instead of Wherry's"
            yield Finding("warning", what, f"remove it, or choose --pod-network none (ls {folder})")
        return
    if found := unexpected_network(settings, running=running):
        yield found
    if FORWARDING.exists() and FORWARDING.read_text().strip() != "1":
        fix = "sysctl -w net.ipv4.ip_forward=1, and the same in a file of /etc/sysctl.d"
        yield Finding("warning", "the kernel does not forward packets (net.ipv4.ip_forward is 0)", fix)
    if not settings.own_containerd:
        return
    if (
        not Path(cni_plugins.FOLDERS[0], "loopback").exists()
        and not (settings.layout.cni_plugins / "loopback").exists()
    ):
        what = f"no CNI plugin loopback in {' or '.join(map(str, cni_plugins.searched(settings)))}"
        yield Finding("warning", what, "apt-get install containernetworking-plugins, unless your plugin brings its own")
    if cni_plugins.open_to_others(settings.layout.cni_plugins):
        what = f"other accounts than root may write to {settings.layout.cni_plugins}, whose programs run as root"
        yield Finding("error", what, "make it and the folders above root's, without write permission for others")


def unexpected_network(settings: Settings, *, running: bool) -> Finding | None:
    """Find another configuration in the place of the required network's, or with `running` none."""
    required, folder = settings.required_network, settings.layout.cni_configuration
    if not required:
        return None
    try:
        present = configurations(settings)
        name = network_name(present[0]) if present else ""
    except PermissionError:  # `wherry status` of an account that may not read it
        return None
    if not present:
        what = f"no CNI configuration in {folder}: the pod network {required} is not installed"
        fix = "install its plugin; the node is Ready when the configuration is there"
        return Finding("warning", what, fix) if running else None
    if name == required:
        return None
    what = f"{present[0]} is {f'the network {name}' if name else 'no CNI configuration'}, and the pod network is {required}"
    fix = f"remove it, or choose --pod-network {name or 'none'} (the first file by name is used: ls {folder})"
    return Finding("warning", what, fix)


def network_name(path: Path) -> str:
    """Return the name of the network of a CNI configuration, empty if it has none. Raise PermissionError."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError):
        return ""
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else ""


def own_file() -> str:
    from netproxy.podnet import cni

    return cni.FILE_NAME


def others_first(settings: Settings) -> list[Path]:
    """Return the configurations that the runtime prefers to that of Wherry's network."""
    return [path for path in configurations(settings) if path.name < own_file()]


def configurations(settings: Settings) -> list[Path]:
    """Return the CNI configurations of the machine in the order in which they are used. Raise PermissionError."""
    try:
        found = sorted(settings.layout.cni_configuration.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path for path in found if path.suffix in SUFFIXES]


def replaces(before: Settings, settings: Settings) -> bool:
    """Return whether pods that run may have another network than new ones: Wherry's and another, or two that have names.

    `none` names no network: the one that is there may be the one that is named now, and a name that is left out changes none.
    """
    if before.own_pod_network != settings.own_pod_network:
        return True
    return bool(
        before.required_network and settings.required_network and before.required_network != settings.required_network
    )


async def change(before: Settings, settings: Settings) -> None:
    """Remove the pods of a machine whose daemons are stopped, and what its present network left.

    Raise WherryError if that is not possible; nothing was changed then, and the same command may be repeated.
    """
    from wherry import reset

    option = f"--pod-network {settings.pod_network}"
    with step("remove pods, which have addresses of the present network"):
        try:
            await reset.remove_pods(before)
        except WherryError as error:
            raise WherryError(
                f"{option}: {error}; remove them while their network plugin works and its configuration is in "
                f"{before.layout.cni_configuration}, or `wherry reset` this machine and join again. To start it as it was, "
                f"run `wherry up --pod-network {before.pod_network}`"
            ) from error
    if before.own_pod_network:
        with step("take routes, links and rules of Wherry's pod network away"):
            await _remove_own(before)
    if settings.own_pod_network:
        for path in others_first(settings):
            with step(f"rename {path} to {path.name}{DISABLED}"):
                path.rename(path.with_name(path.name + DISABLED))


async def _remove_own(before: Settings) -> None:
    from netproxy.cleanup import remove_pod_network
    from netproxy.configuration_file import load
    from wherry.proxy_settings import proxy_config

    if before.layout.proxy_configuration.exists():
        await remove_pod_network(proxy_config(before, load(before.layout.proxy_configuration)))


async def remove_dns(before: Settings) -> None:
    """Remove what nodes have that answer cluster DNS: its addresses and their protection."""
    from netproxy.cleanup import remove_dns

    await remove_dns(before.dns_addresses)


def _plugin(settings: Settings) -> str:
    return f"the CNI network {settings.required_network}" if settings.required_network else "your CNI plugin"


def summary(settings: Settings) -> str:
    """Return a line about the pod network of a machine that does not have Wherry's."""
    if not settings.required_network:
        return "pod network and network policies: those of another CNI plugin"
    found = unexpected_network(settings, running=True)
    state = f"; {found.what}" if found else ""
    return f"pod network and network policies: those of the CNI network {settings.required_network}{state}"


def describe(settings: Settings) -> None:
    """Print which parts of the network are another program's."""
    if not settings.own_pod_network:
        folder = settings.layout.cni_configuration
        console.print(
            f"\nPods get their network, and network policies, from {_plugin(settings)}. A node is Ready when the plugin's "
            f"configuration is in {folder}; pods of the host network run before.",
            soft_wrap=True,
        )
    if not settings.serves_dns:
        where = (
            f"pods ask {settings.cluster_dns}" if settings.dns_addresses else "pods ask the resolvers of their nodes"
        )
        console.print(f"\nCluster DNS is not Wherry's: {where}.", soft_wrap=True)
