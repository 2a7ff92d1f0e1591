"""`python -m netproxy`: kube-proxy's flags, and flags for cluster DNS and the pod network."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from kube import interned_strings
from kube.build import GIT_VERSION
from kube.kubeconfig import KubeconfigError
from netproxy import config, configuration_file, logs, main, sysctl, without_services
from netproxy import flags as kube_proxy
from netproxy.cleanup import cleanup
from netproxy.errors import ConfigError, UnsupportedModeError, WriteError
from netproxy.validation import validate


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar; names are kube-proxy's where it has the flag."""
    flags = argparse.ArgumentParser(prog="netproxy", description="Service proxy, cluster DNS and pod network of a node")
    flags.add_argument("--config", help="a KubeProxyConfiguration file; flags override it")
    kube_proxy.add_to(flags)
    flags.add_argument("--healthz-bind-address", help="where health is served; '' nowhere")
    flags.add_argument("--metrics-bind-address", help="where metrics are served; '' nowhere")
    flags.add_argument(
        "--healthz-port",
        type=int,
        help="port of the health endpoint; ignored if --healthz-bind-address is given; 0 disables it",
    )
    flags.add_argument(
        "--metrics-port",
        type=int,
        help="port of the metrics endpoint; ignored if --metrics-bind-address is given; 0 disables it",
    )
    flags.add_argument(
        "--ipvs-scheduler-flags", type=kube_proxy.listing, help="of sh and mh: sh-port, mh-fallback, ..."
    )
    flags.add_argument("--init-only", nargs="?", const=True, type=kube_proxy.boolean, help="set kernel limits and exit")
    flags.add_argument("--write-config-to", metavar="FILE", help="write the configuration in force to a file and exit")
    flags.add_argument("--version", action="version", version=f"Kubernetes {GIT_VERSION}")
    flags.add_argument(
        "--service-cidr", dest="service_cidrs", type=kube_proxy.listing, help="the Services' address ranges"
    )
    flags.add_argument("--iptables-flavour", choices=("auto", "nft", "legacy"), help="which tables to write")
    flags.add_argument("--cluster-dns", type=kube_proxy.listing, help="addresses of cluster DNS")
    flags.add_argument("--cluster-domain", help="the domain of cluster DNS")
    flags.add_argument("--resolv-conf", help="file with the resolvers for all other names")
    flags.add_argument("--dns-ttl", type=int, help="seconds that clients may keep an answer of cluster DNS, 0 to 3600")
    flags.add_argument("--dns-pods", choices=config.DNS_PODS, help="how names of pods are answered")
    flags.add_argument(
        "--no-services",
        action="store_true",
        help="leave Services to another proxy: run only cluster DNS and the pod network",
    )
    flags.add_argument("--no-dns", action="store_true", help="do not serve cluster DNS on this node")
    flags.add_argument("--no-pod-network", action="store_true", help="leave CNI configuration and routes to others")
    flags.add_argument("--node-routes", choices=config.NODE_ROUTES, help="how pods of other nodes are reached")
    flags.add_argument("--vxlan-port", type=int, help="the UDP port of the tunnel between nodes")
    flags.add_argument("--no-network-policy", action="store_true", help="leave NetworkPolicies to others")
    flags.add_argument(
        "--no-source-guard", action="store_true", help="let pods send with addresses that are not theirs"
    )
    flags.add_argument(
        "--no-service-load-balancer",
        action="store_true",
        help="Services' load balancers never have nodes' addresses: serve all of theirs, whatever addresses nodes name",
    )
    flags.add_argument("--no-gateway", action="store_true", help="do not serve Gateways and Ingresses on this node")
    flags.add_argument("--cni-results-dir", help="where the runtime's CNI library keeps results")
    flags.add_argument("--cni-conf-dir", help="where the container runtime reads CNI configurations")
    flags.add_argument("--cni-data-dir", help="where host-local keeps the addresses it gave")
    flags.add_argument(
        "--cleanup",
        nargs="?",
        const=True,
        type=kube_proxy.boolean,
        help="remove all rules of the proxy, of every mode, and exit",
    )
    flags.add_argument("--verbose", action="store_true", help="log everything")
    return flags


def configuration(arguments: argparse.Namespace) -> config.ProxyConfig:
    """Build the configuration from the file and the flags; ConfigError for what cannot be used."""
    result = configuration_file.load(arguments.config) if arguments.config else config.ProxyConfig()
    document = kube_proxy.document(arguments)
    head = {"apiVersion": configuration_file.API_VERSION, "kind": configuration_file.KIND}
    result = configuration_file.parse({**head, **document}, result)
    if arguments.ipvs_scheduler_flags is not None:
        result = replace(result, ipvs=replace(result.ipvs, scheduler_flags=tuple(arguments.ipvs_scheduler_flags)))
    for name in ("healthz", "metrics"):
        number, address = getattr(arguments, f"{name}_port"), f"{name}_bind_address"
        if number is not None:
            host = getattr(result, address).rpartition(":")[0]
            changed: dict[str, Any] = {address: f"{host}:{number}" if number else ""}
            result = replace(result, **changed)
    plain = ["service_cidrs", "healthz_bind_address", "metrics_bind_address", "iptables_flavour"]
    given = {name: _frozen(getattr(arguments, name)) for name in plain if getattr(arguments, name) is not None}
    dns = {"addresses": arguments.cluster_dns, "domain": arguments.cluster_domain, "resolv_conf": arguments.resolv_conf}
    dns = {name: _frozen(value) for name, value in dns.items()} | {"pods": arguments.dns_pods, "ttl": arguments.dns_ttl}
    pods = {"cni_conf_dir": arguments.cni_conf_dir, "cni_data_dir": arguments.cni_data_dir}
    pods |= {"cni_results_dir": arguments.cni_results_dir}
    pods |= {"node_routes": arguments.node_routes, "vxlan_port": arguments.vxlan_port}
    result = replace(
        result,
        **given,
        services=not arguments.no_services,
        gateway=not arguments.no_gateway,
        service_load_balancer=not arguments.no_service_load_balancer,
        dns=replace(
            result.dns,
            enabled=not arguments.no_dns,
            **{name: value for name, value in dns.items() if value is not None},
        ),
        pod_network=replace(
            result.pod_network,
            enabled=not arguments.no_pod_network,
            network_policy=not arguments.no_network_policy,
            source_guard=not arguments.no_source_guard,
            **{name: value for name, value in pods.items() if value is not None},
        ),
    )
    validate(result)
    return result


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


async def _serve(settings: config.ProxyConfig) -> None:
    interned_strings.warn(logging.getLogger("netproxy"))
    task = asyncio.current_task()
    assert task is not None
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, task.cancel)
    await (main.run if settings.services else without_services.run)(settings)


def _write(path: Path, text: str) -> None:
    """Write a file; a link is followed in /dev alone, because the folder may be one that other accounts may write."""
    link = 0 if path.is_relative_to("/dev") else os.O_NOFOLLOW
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | link, 0o644), "w") as file:
        file.write(text)


def cli(argv: list[str] | None = None) -> int:
    """Run the command; 0 after an orderly end, 1 for a configuration that cannot be used."""
    arguments = parser().parse_args(argv)
    logs.configure("text", everything=arguments.verbose)
    try:
        settings = configuration(arguments)
        logs.configure(settings.log_format, everything=arguments.verbose or settings.verbosity >= 4)
        if arguments.write_config_to:
            _write(Path(arguments.write_config_to), configuration_file.dump(settings))
        elif arguments.init_only:
            sysctl.apply_conntrack(settings.conntrack)
        elif arguments.cleanup:
            asyncio.run(cleanup(settings))
        else:
            asyncio.run(_serve(settings))
    except (OSError, ConfigError, UnsupportedModeError, KubeconfigError, WriteError) as error:
        print(f"netproxy: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(cli())
