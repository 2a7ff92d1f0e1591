"""The agent's configuration on a machine that Wherry set up."""

from __future__ import annotations

from dataclasses import replace

from agent.config import AgentConfig, OwnContainerd
from agent.configure import from_flags
from agent.flags import Flags
from netproxy.podnet import cni
from wherry import cni_plugins, registries
from wherry.settings import Settings


def agent_config(settings: Settings) -> AgentConfig:
    """Return the configuration; raises ConfigError."""
    layout = settings.layout
    flags = Flags(
        config=str(layout.kubelet_configuration),
        config_dir=str(layout.kubelet_drop_ins) if layout.kubelet_drop_ins.is_dir() else "",
        kubeconfig=str(layout.agent_kubeconfig),
        root_dir=str(layout.kubelet),
        hostname_override=settings.node_name,
        node_ip=",".join(settings.node_ips),
        container_logs_dir=str(layout.container_logs),
        node_labels="",
    )
    config = from_flags(flags)
    credentials = layout.registries / registries.CREDENTIALS
    images = replace(config.images, registry_credentials=credentials)
    return replace(
        config, containerd=own_containerd(settings), images=images, required_network=settings.required_network
    )


def own_containerd(settings: Settings) -> OwnContainerd | None:
    """Return where Wherry's own containerd has its things; None if another one is used."""
    if not settings.own_containerd:
        return None
    layout = settings.layout
    return OwnContainerd(
        socket=layout.containerd_socket,
        root=layout.containerd_root,
        state=layout.containerd_state,
        reservations=layout.cni_state / cni.NETWORK,
        network=layout.cni_configuration / cni.FILE_NAME,
        plugins=cni_plugins.searched(settings),
    )
