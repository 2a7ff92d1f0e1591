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
        service_load_balancer=settings.load_balancer_enabled,
        dns=DNSConfig(
            enabled=settings.serves_dns and not settings.dns_alone,
            addresses=settings.dns_addresses if settings.serves_dns else (),
            domain=settings.cluster_domain,
            resolv_conf=settings.resolv_conf,
        ),
        pod_network=PodNetworkConfig(
            enabled=settings.own_pod_network,
            cni_conf_dir=str(layout.cni_configuration),
            cni_data_dir=str(layout.cni_state),
            node_routes=settings.node_routes,
        ),
    )


def dns_config(settings: Settings, upstream: ProxyConfig) -> ProxyConfig:
    """Return the configuration of cluster DNS alone; beside another proxy its process also has the pod network."""
    whole = proxy_config(settings, upstream)
    return replace(
        whole,
        services=False,
        gateway=not settings.own_proxy,
        metrics_bind_address=f"127.0.0.1:{settings.dns_metrics_port}",
        dns=replace(whole.dns, enabled=settings.serves_dns),
        pod_network=replace(whole.pod_network, enabled=settings.own_pod_network and not settings.own_proxy),
    )
