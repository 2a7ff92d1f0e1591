"""`wherry up`: creates or starts a cluster on one machine. Each step is idempotent: correct files are kept."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kube.bootstrap_tokens import Token
from wherry import (
    addresses,
    check,
    cluster,
    configuration,
    containerd,
    daemons,
    file_modes,
    identity,
    installation,
    other_network,
    other_proxy,
    starting,
    storage,
    tokens,
    units,
    user_kubeconfig,
)
from wherry.option_checks import complete
from wherry.progress import step
from wherry.settings import Settings, load
from wherry.terminal import console


async def up(wanted: Settings) -> Settings:
    """Set up and start the cluster and wait until it serves; return the settings in force."""
    settings = complete(wanted, addresses.own_address())
    before = load(settings.prefix)
    if before is not None:
        await identity.require(before, settings)
    pids = await daemons.running(before or settings)
    with step("check the machine"):
        if units.uses_systemd(settings):
            await units.prepare_machine()
        await check.prepare(settings)
        check.require(settings, running=any(pids.values()))
    await _stop_stale(before, settings, pids)
    if before is not None:
        await _leave(before, settings)
    if settings.is_worker:
        return await _start_again(settings)
    if settings.store == "etcd":
        with step("reach etcd"):
            await storage.reach(settings)
    with step("write certificates and configuration"):
        file_modes.make_folders(settings)
        settings.save()
        containerd.write_configuration(settings)
        former = user_kubeconfig.present(settings)
        renewed = configuration.write_all(settings)
    if renewed and any((await daemons.running(settings)).values()):
        with step("stop what runs with other certificates"):
            await daemons.stop(settings)
    async with cluster.admin(settings) as client:
        await starting.start_member(settings, client)
        token = await tokens.create(client, description="made by wherry up") if before is None else None
    user_kubeconfig.offer(settings, former)
    other_proxy.describe(settings)
    other_network.describe(settings)
    _print_how_to_join(settings, token)
    return settings


async def _stop_stale(before: Settings | None, settings: Settings, pids: Mapping[str, int]) -> None:
    """Stop the daemons that run, by name, if they have other options or another version."""
    if any(pids.values()) and not _same(before, settings):
        with step("stop what runs with other options"):
            await daemons.stop(before or settings)
    elif outdated := installation.outdated(pids):
        with step(f"stop what runs with another version: {', '.join(outdated)}"):
            await daemons.stop(settings)


def _print_how_to_join(settings: Settings, token: Token | None) -> None:
    """Print the line that adds another machine, or the command that prints it if there is no new token."""
    if token is not None:
        console.print("\nTo add a machine within 24 hours, install Wherry on it and run there as root:\n")
        console.print(f"  {tokens.join_command(settings, token)}", soft_wrap=True)
    else:
        line = f"{user_kubeconfig.sudo()}wherry token create --print-join-command"
        console.print(f"\n{line} prints the line that adds another machine.", soft_wrap=True)


def _same(before: Settings | None, settings: Settings) -> bool:
    """Return whether the daemons would run with the same options.

    Files of registries are read for each pull, and options of snapshots before each; a folder of snapshots is the unit's too.
    """
    snapshots = {name for name in Settings.__struct_fields__ if name.startswith("snapshot_")} - {"snapshot_folder"}
    names = {"configured", "registries", "registry_mirrors"} | snapshots
    read_later = {name: getattr(settings, name) for name in names}
    return before is not None and msgspec.structs.replace(before, **read_later) == settings


async def _leave(before: Settings, settings: Settings) -> None:
    """Remove what parts of the network had that other programs replace; the daemons are stopped."""
    if other_network.replaces(before, settings):
        await other_network.change(before, settings)
    if before.own_proxy and not settings.own_proxy:
        with step("take the rules of Wherry's proxy away"):
            await other_proxy.remove_own_rules()
    if before.serves_dns and not settings.serves_dns:
        with step("take the addresses of cluster DNS away"):
            await other_network.remove_dns(before)


async def _start_again(settings: Settings) -> Settings:
    """Start a machine that has joined, with its saved options and the given ones."""
    with step("write configuration"):
        file_modes.make_folders(settings)
        settings.save()
        containerd.write_configuration(settings)
        configuration.rewrite_node(settings)
    await starting.start_worker(settings)
    other_proxy.describe(settings)
    other_network.describe(settings)
    return settings
