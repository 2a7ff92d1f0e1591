"""Checks the configuration, the machine and the runtime before the agent starts anything."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from agent.cgroups import node_allocatable
from agent.config import AgentConfig
from agent.eviction.thresholds import Threshold, thresholds
from agent.kubelet_configuration import ConfigError
from agent.podspec import dns, subordinate_ids
from agent.podspec.userns import UserNamespaces
from cri.client import Client as RuntimeClient
from cri.errors import CRIError, UnimplementedError
from kube.clock import Clock

log = logging.getLogger(__name__)

RUNTIME_RETRY_SECONDS = 0.25


async def user_namespaces(config: AgentConfig) -> UserNamespaces:
    """Raise ConfigError if the IDs that the node has for pods cannot be used."""
    try:
        room = await subordinate_ids.usable(config.ids_per_pod, config.max_pods)
    except subordinate_ids.SubordinateIdsError as error:
        raise ConfigError(f"create user namespace manager: {error}") from error
    users = UserNamespaces(config.pods_dir, room, config.ids_per_pod)
    await asyncio.to_thread(users.load)
    return users


def eviction_thresholds(config: AgentConfig) -> tuple[Threshold, ...]:
    """Raise ConfigError if the eviction thresholds do not fit together."""
    try:
        return thresholds(
            config.eviction.hard,
            config.eviction.soft,
            config.eviction.soft_grace,
            config.eviction.minimum_reclaim,
            pods_bounded=config.cgroups_per_qos and node_allocatable.PODS in config.enforcement.options,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


async def runtime_answers(runtime: RuntimeClient, clock: Clock) -> None:
    """Wait for the container runtime: nothing can be decided before it is known what runs."""
    logged = False
    while True:
        try:
            await runtime.runtime.version()
            return
        except CRIError as error:
            if not logged:
                log.info("waiting for the container runtime: %s", error)
                logged = True
            await clock.sleep(RUNTIME_RETRY_SECONDS)


async def cgroup_driver(config: AgentConfig, runtime: RuntimeClient) -> str:
    """Ask the runtime for its cgroup driver; one that does not report it (containerd before 2.0) uses the configured one."""
    try:
        found = await runtime.runtime.cgroup_driver()
    except CRIError as error:
        if not isinstance(error, UnimplementedError):
            log.warning("the runtime's cgroup driver: %s", error)
        return config.cgroup_driver
    if found != config.cgroup_driver:
        log.info("cgroup driver of the container runtime: %s", found)
    return found


def host_resolver(config: AgentConfig) -> dns.Resolver:
    if not config.resolv_conf:
        # Upstream's answer to resolvConf: "": nothing can be resolved.
        return dns.Resolver(("127.0.0.1",), (".",))
    return dns.parse(text_of(Path(config.resolv_conf)))


def text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        log.warning("%s: %s", path, error.strerror)
        return ""
