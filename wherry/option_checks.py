"""Checks of all options of `wherry up` and `wherry join`, before anything is written or started.

`config validate`, `up`, `join` and `upgrade --check` share them. All that is wrong is reported, not only the first. Options of
known values and of single forms are in tables; the functions behind them check options that go together.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from kube.port_ranges import PortRanges
from kube.tracing import configuration as tracing
from kube.tracing.configuration import TracingConfiguration
from wherry import addons, addresses, ranges, registries, snapshot_options, value_forms
from wherry.errors import OptionError, Problem, wrong
from wherry.registries import Registry
from wherry.settings import NO_DNS, Settings, account

T = TypeVar("T")
MOST_PODS = 65535
"""User namespaces: each pod has 65536 of 2^32 user IDs, and the machine itself the first ones."""
_KNOWN = {
    "proxy": ("wherry", "upstream", "none"),
    "dns": ("proxy", "alone", "none"),
    "proxy_mode": ("iptables", "nftables", "ipvs", "auto"),
    "node_routes": ("auto", "host-gw", "vxlan", "none"),
    "logging_format": ("text", "json"),
    "store": ("sqlite", "etcd"),
}
_FORMS: dict[str, Callable[[str], str]] = {
    "node_name": value_forms.domain,
    "pod_network": value_forms.cni_network,
    "cluster_domain": value_forms.domain,
    "sandbox_image": value_forms.image,
    "runtime_endpoint": value_forms.socket_endpoint,
    "etcd_cafile": value_forms.file,
    "etcd_certfile": value_forms.file,
    "etcd_keyfile": value_forms.file,
    "etcd_prefix": value_forms.etcd_prefix,
}
_PORTS = (
    "api_port",
    "kubelet_port",
    "kubelet_healthz_port",
    "proxy_healthz_port",
    "proxy_metrics_port",
    "controller_manager_port",
    "scheduler_port",
    "dns_metrics_port",
)
_OPTIONAL_PORTS = frozenset({"controller_manager_port", "scheduler_port"})
"""Ports that may be 0, for none."""


def complete(settings: Settings, default_address: str) -> Settings:
    """Check the choices and fill in what follows from the machine. Raise OptionError with all problems and their fixes."""
    if found := problems(settings, default_address):
        raise OptionError(found)
    services, pods = (ranges.networks(option, text) for option, text in _ranges(settings))
    changes: dict[str, Any] = {
        "node_name": settings.node_name or socket.gethostname().lower(),
        "service_cidr": ranges.text(services),
        "pod_cidr": ranges.text(pods),
    }
    if settings.cluster_dns != NO_DNS:
        changes["cluster_dns"] = ranges.cluster_dns(settings.cluster_dns, services)
    first, *others = ranges.node_addresses(_address(settings, default_address), services, pods)
    changes |= {"node_ip": first, "second_node_ip": "".join(others)}
    return msgspec.structs.replace(settings, **changes)


def problems(settings: Settings, default_address: str | None) -> list[Problem]:
    """Return all that is wrong with the choices of a machine, whose own address is not checked if it is None."""
    found = list(_unprintable(settings))
    usual = {_field(problem.option): getattr(Settings(), _field(problem.option)) for problem in found}
    settings = msgspec.structs.replace(settings, **usual)  # texts that nothing can read are not checked further
    found += _values(settings)
    found += _network(settings, default_address)
    found += _numbers(settings)
    found += _tracing(settings)
    found += _runtime(settings)
    found += check_store(settings)
    found += addons.disabled_problems(settings.disable)
    if not settings.is_worker:
        own = account()
        group, user = (-1, -1) if own is None else (own.pw_gid, own.pw_uid)
        found += snapshot_options.problems(
            settings.snapshot_options,
            group,
            user,
            named=bool(settings.snapshot_folder),
            own_credentials=bool(settings.snapshot_s3_credentials),
        )
    return found


def option_name(field: str) -> str:
    """Return the option of a setting."""
    return {"names": "name", "registry_mirrors": "registry-mirror"}.get(field, field.replace("_", "-"))


def _field(option: str) -> str:
    return {"name": "names", "registry-mirror": "registry_mirrors"}.get(option, option.replace("-", "_"))


def _unprintable(settings: Settings) -> Iterator[Problem]:
    for field in Settings.__struct_fields__:
        value = getattr(settings, field)
        texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        if isinstance(value, dict) and field == "registry_mirrors":
            texts = [f"{host}={url}" for host, url in value.items()]
        for text in texts:
            if why := value_forms.printable(text):
                yield wrong(option_name(field), text, why)
                break


def _values(settings: Settings) -> Iterator[Problem]:
    """Check the options that have known values or a form, each for itself."""
    for field, known in _KNOWN.items():
        if why := value_forms.one_of(getattr(settings, field), known):
            yield wrong(option_name(field), getattr(settings, field), why)
    for field, form in _FORMS.items():
        value = getattr(settings, field)
        if value and (why := form(value)):
            yield wrong(option_name(field), value, why)
    if not settings.node_name and (why := value_forms.domain(name := socket.gethostname().lower())):
        yield Problem("node-name", f"the host name {name!r} is no name of a node: {why}; choose one with --node-name")
    for name in settings.names:
        if why := value_forms.certificate_name(name):
            yield wrong("name", name, why)
    try:
        PortRanges.parse(settings.load_balancer_ports)
    except ValueError as error:
        yield wrong("load-balancer-ports", settings.load_balancer_ports, str(error))
    if settings.resolv_conf != Settings().resolv_conf and (why := value_forms.file(settings.resolv_conf)):
        yield wrong("resolv-conf", settings.resolv_conf, why)


def _ranges(settings: Settings) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("service-cidr", settings.service_cidr), ("pod-cidr", settings.pod_cidr)


def _address(settings: Settings, default_address: str | None) -> str:
    address = settings.node_ip or default_address or ""
    return f"{address},{settings.second_node_ip}" if settings.second_node_ip and "," not in address else address


def _network(settings: Settings, default_address: str | None) -> list[Problem]:
    """Check the ranges, and the addresses that lie in them or do not."""
    found: list[Problem] = []
    services, pods = (_attempt(found, ranges.networks, option, text) for option, text in _ranges(settings))
    if services and pods:
        _attempt(found, ranges.check, services, pods)
    if pods and not (settings.layout.etc / "controller-manager.yaml").exists():  # which may have another mask
        _attempt(found, ranges.check_parts, pods)
    if services and settings.cluster_dns != NO_DNS and all(each.num_addresses > 10 for each in services):
        _attempt(found, ranges.cluster_dns, settings.cluster_dns, services)
    if settings.proxy == "upstream" and settings.proxy_mode == "auto":
        why = "upstream's proxy has no such mode; choose iptables, nftables or ipvs"
        found.append(wrong("proxy-mode", "auto", why, "proxy"))
    if not (address := _address(settings, default_address)):
        if default_address is not None:
            text = "this machine has no address that others could reach: name it with --node-ip"
            found.append(Problem("node-ip", text))
        return found
    own = _attempt(found, ranges.node_addresses, address, services or (), pods or ())
    if own and settings.node_ip:
        found += _without_interface(own)
    if own and services and not settings.is_worker and ipaddress.ip_address(own[0]).version != services[0].version:
        why = (
            f"the first address of a control-plane node must have the family of the first --service-cidr, {services[0]}"
        )
        found.append(wrong("node-ip", own[0], why, "service-cidr"))
    return found


def _without_interface(own: tuple[str, ...]) -> Iterator[Problem]:
    """Check that interfaces have the addresses, as upstream's kubelet does."""
    for address in addresses.absent(own):
        why = "no interface of this machine has this address; `ip address` shows those that it has"
        yield wrong("node-ip", address, why)


def _attempt(found: list[Problem], check: Callable[..., T], *arguments: Any) -> T | None:
    """Return the result of a check; add its problems to those that were found."""
    try:
        return check(*arguments)
    except OptionError as error:
        found += error.problems
        return None


def _numbers(settings: Settings) -> Iterator[Problem]:
    if why := value_forms.within(settings.max_pods, 1, MOST_PODS):
        yield wrong("max-pods", settings.max_pods, why)
    usual = Settings()
    used: dict[int, str] = {}
    for field in sorted(_PORTS, key=lambda field: bool(getattr(settings, field) != getattr(usual, field))):
        port = getattr(settings, field)
        if port == 0 and field in _OPTIONAL_PORTS:
            continue
        if not 0 < port < 65536:
            yield wrong(option_name(field), port, "a port is between 1 and 65535")
        elif port in used:
            yield wrong(option_name(field), port, f"this is --{used[port]}, too", used[port])
        else:
            used[port] = option_name(field)


def _tracing(settings: Settings) -> Iterator[Problem]:
    options = {"endpoint": settings.tracing_endpoint, "samplingRatePerMillion": settings.tracing_sampling_rate}
    found = TracingConfiguration(settings.tracing_endpoint, settings.tracing_sampling_rate)
    for problem in tracing.problems(found):
        field, _, why = problem.partition(": Invalid value: ")
        option = "tracing-endpoint" if field == "endpoint" else "tracing-sampling-rate"
        yield wrong(option, options[field], why.partition(": ")[2])


def _runtime(settings: Settings) -> Iterator[Problem]:
    """Check the registries, which are those of Wherry's own containerd."""
    for host, mirror in settings.registry_mirrors.items():
        if why := registries.problem_of(host, Registry(mirrors=[mirror])):
            yield wrong("registry-mirror", f"{host}={mirror}", why)
    if settings.runtime_endpoint and any(one.needs_hosts_toml for one in settings.all_registries.values()):
        text = (
            "--registry-mirror and `registries` are for Wherry's own containerd: "
            f"write the hosts.toml of the one at {settings.runtime_endpoint}, and use --unset registry-mirror"
        )
        yield Problem("registry-mirror", text, ("registries", "runtime-endpoint"))


def check_store(settings: Settings) -> Iterator[Problem]:
    """Check that the choice of a storage engine is complete, and the members of etcd."""
    if settings.store == "etcd" and not settings.etcd_servers:
        text = "--store etcd needs --etcd-servers, as in https://10.0.0.1:2379,https://10.0.0.2:2379"
        yield Problem("store", text, ("etcd-servers",))
    if settings.store == "sqlite" and settings.etcd_servers:
        yield Problem("etcd-servers", "--etcd-servers is for --store etcd", ("store",))
    for server in settings.etcd_servers.split(",") if settings.etcd_servers else ():
        if not value_forms.is_url(server.strip()):
            yield wrong("etcd-servers", server.strip(), "write http://HOST:PORT or https://HOST:PORT")
    if bool(settings.etcd_certfile) != bool(settings.etcd_keyfile):
        given, other = ("certfile", "keyfile") if settings.etcd_certfile else ("keyfile", "certfile")
        text = "--etcd-certfile and --etcd-keyfile go together: name both"
        yield Problem(f"etcd-{given}", text, (f"etcd-{other}",))
