"""The proxy's configuration on a machine that Wherry set up."""

from __future__ import annotations

from dataclasses import replace

from netproxy.config import DNSConfig, PodNetworkConfig, ProxyConfig
from wherry.settings import Settings


def proxy_config(settings: Settings, upstream: ProxyConfig) -> ProxyConfig:
    """Add what upstream's file has no words for: cluster DNS and the pod network."""
    layout = settings.layout
    return replace(
        upstream,
        service_cidrs=tuple(settings.service_cidr.split(",")),
        dns=DNSConfig(
            addresses=settings.dns_addresses, domain=settings.cluster_domain, resolv_conf=settings.resolv_conf
        ),
        pod_network=PodNetworkConfig(
            cni_conf_dir=str(layout.cni_configuration),
            cni_data_dir=str(layout.cni_state),
            node_routes=settings.node_routes,
        ),
    )
