"""Settings of `wherry up`, saved for later commands."""

from __future__ import annotations

import contextlib
import ipaddress
import pwd
import socket
from pathlib import Path
from typing import Any

import msgspec

from control import addon_names
from kube import names
from kube.files import write_file
from kube.port_ranges import LOAD_BALANCERS, PortRanges
from kube.tracing import configuration as tracing
from kube.tracing.configuration import TracingConfiguration
from kube.urls import host_port
from wherry import addons, ranges, registries, snapshot_options
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.registries import Registry
from wherry.snapshot_options import SnapshotOptions

USER = "wherry"
"""Account of the control plane under systemd."""
NO_DNS = "none"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One machine's choices. Empty strings are filled in by `complete`."""

    prefix: str = "/"
    role: str = "control-plane"
    """control-plane, or worker, which runs no API server."""
    joined: str = ""
    """The URL of the API server that this machine joined by; empty on the first machine."""
    node_name: str = ""
    node_ip: str = ""
    second_node_ip: str = ""
    """Its address of the other family, on dual-stack machines."""
    api_port: int = 6443
    kubelet_port: int = 10250
    kubelet_healthz_port: int = 10248
    proxy_healthz_port: int = 10256
    proxy_metrics_port: int = 10249
    controller_manager_port: int = 10257
    """Health and metrics of the controllers on 127.0.0.1; 0: none. The next one is the scheduler's."""
    scheduler_port: int = 10259
    dns_metrics_port: int = 9153
    """Health and metrics of cluster DNS, where that has a process of its own; CoreDNS' port."""
    pod_cidr: str = "10.244.0.0/16"
    service_cidr: str = "10.96.0.0/12"
    cluster_domain: str = "cluster.local"
    cluster_dns: str = ""
    """Addresses of cluster DNS: one, or one of each family, with a comma between; none, if pods are given no cluster DNS."""
    pod_network: str = "wherry"
    """Pod network: wherry; none, a CNI plugin of the operator's."""
    proxy: str = "wherry"
    """Service proxy: wherry; upstream, the operator's own kube-proxy; none, another program."""
    dns: str = "proxy"
    """Process of cluster DNS: Wherry's proxy; alone, one of its own; none, the operator's own DNS."""
    proxy_mode: str = "iptables"
    node_routes: str = "auto"
    """Routes to pods of other nodes: host-gw, vxlan, auto (host-gw on a shared link, vxlan otherwise), none."""
    service_load_balancer: bool = True
    """True if Services of type LoadBalancer get the nodes' addresses."""
    load_balancer_ports: str = LOAD_BALANCERS
    """The ports that they may have there: numbers and ranges, with commas between."""
    disable: list[str] = []
    """Names of addons that are disabled: parts of the control plane, and files of the folder of addons."""
    runtime_endpoint: str = ""
    """Another containerd's socket (unix://...); empty: Wherry runs its own."""
    sandbox_image: str = ""
    registry_mirrors: dict[str, str] = {}
    """Registry host -> URL of its mirror."""
    registries: dict[str, Registry] = {}
    """Registry host -> what the configuration file says of it."""
    resolv_conf: str = "/etc/resolv.conf"
    names: list[str] = []
    """More names and addresses for the API server's certificate."""
    max_pods: int = 110
    logging_format: str = "text"
    """Format of the roles' logs: text, or json, an object a line."""
    tracing_endpoint: str = ""
    """Address of the collector that the roles send spans to; empty: nothing is traced."""
    tracing_sampling_rate: int = 10_000
    """Number of traces out of a million that are recorded."""
    store: str = "sqlite"
    """Storage engine of the API server: sqlite or etcd."""
    etcd_servers: str = ""
    """URLs of its members, with commas between."""
    etcd_cafile: str = ""
    etcd_certfile: str = ""
    etcd_keyfile: str = ""
    etcd_prefix: str = "/registry"
    snapshot_schedule: str = ""
    """Cron schedule of snapshots, or off; empty: that of `snapshot_options`."""
    snapshot_retention: int = 5
    """Number of scheduled snapshots that are kept, on the machine and in S3."""
    snapshot_folder: str = ""
    """Folder of snapshots; empty: one in the state folder."""
    snapshot_s3_bucket: str = ""
    """Bucket that snapshots are copied to; empty: none."""
    snapshot_s3_endpoint: str = ""
    """URL of the S3 service; empty: that of AWS in the region."""
    snapshot_s3_region: str = "us-east-1"
    snapshot_s3_folder: str = ""
    snapshot_s3_credentials: str = ""
    """File with the access key; empty: s3-credentials in the folder of the configuration."""
    snapshot_s3_ca: str = ""
    snapshot_s3_insecure: bool = False
    """True if the service may be used without TLS or with a certificate that is not verified."""
    snapshot_s3_timeout: int = 300
    """Seconds that a request to the service may take."""
    configured: list[str] = []
    """Names of the settings that the configuration file had at the last `wherry up`."""

    @property
    def is_worker(self) -> bool:
        return self.role == "worker"

    @property
    def own_proxy(self) -> bool:
        return self.proxy == "wherry"

    @property
    def own_pod_network(self) -> bool:
        return self.pod_network == "wherry"

    @property
    def serves_dns(self) -> bool:
        """True if nodes answer cluster DNS."""
        return self.dns != "none" and self.cluster_dns != NO_DNS

    @property
    def dns_alone(self) -> bool:
        """True if cluster DNS has a process of its own."""
        return self.serves_dns and (self.dns == "alone" or not self.own_proxy)

    @property
    def runs_dns(self) -> bool:
        """True if the process of cluster DNS runs; beside another proxy it also has the pod network."""
        return self.dns_alone or (self.own_pod_network and not self.own_proxy)

    @property
    def load_balancer_enabled(self) -> bool:
        return self.service_load_balancer and addon_names.SERVICE_LOAD_BALANCER not in self.disable

    @property
    def dns_addresses(self) -> tuple[str, ...]:
        """The addresses that pods are given as cluster DNS."""
        return () if self.cluster_dns == NO_DNS else tuple(self.cluster_dns.split(","))

    @property
    def tracing(self) -> TracingConfiguration | None:
        """Configuration of the roles' spans; None: nothing is traced."""
        if not self.tracing_endpoint:
            return None
        return TracingConfiguration(self.tracing_endpoint, self.tracing_sampling_rate)

    @property
    def layout(self) -> Layout:
        return Layout(Path(self.prefix))

    @property
    def snapshot_options(self) -> SnapshotOptions:
        """The options of snapshots with their defaults on this machine: SQLite has one copy, etcd several members."""
        usual = snapshot_options.USUAL if self.store == "sqlite" and not self.is_worker else snapshot_options.OFF
        return SnapshotOptions(
            schedule=self.snapshot_schedule or usual,
            retention=self.snapshot_retention,
            folder=Path(self.snapshot_folder) if self.snapshot_folder else self.layout.snapshots,
            bucket=self.snapshot_s3_bucket,
            endpoint=self.snapshot_s3_endpoint,
            region=self.snapshot_s3_region,
            bucket_folder=self.snapshot_s3_folder,
            credentials=Path(self.snapshot_s3_credentials or self.layout.etc / snapshot_options.CREDENTIALS),
            ca=self.snapshot_s3_ca,
            insecure=self.snapshot_s3_insecure,
            timeout=self.snapshot_s3_timeout,
        )

    @property
    def server(self) -> str:
        """The API server's URL as the roles on this machine use it."""
        if self.is_worker:
            return self.joined
        return f"https://{host_port(self.node_ip, self.api_port)}"

    @property
    def own_containerd(self) -> bool:
        return not self.runtime_endpoint

    @property
    def all_registries(self) -> dict[str, Registry]:
        """Return the registries with the mirrors that were given by --registry-mirror."""
        found = dict(self.registries)
        for host, mirror in self.registry_mirrors.items():
            one = found.get(host, Registry())
            found[host] = msgspec.structs.replace(one, mirrors=[mirror, *(url for url in one.mirrors if url != mirror)])
        return found

    @property
    def runtime(self) -> str:
        return self.runtime_endpoint or f"unix://{self.layout.containerd_socket}"

    @property
    def kubernetes_service(self) -> str:
        """The first address of the service range, where pods find the API server."""
        return str(ipaddress.ip_network(self.service_cidr.split(",")[0])[1])

    @property
    def node_ips(self) -> list[str]:
        """This machine's addresses, one a family; the first is the one that the API server is reached at."""
        return [address for address in (self.node_ip, self.second_node_ip) if address]

    def save(self) -> None:
        """Write the file of the settings, for root and the control plane's account: URLs in it may have passwords.

        The registries, whose passwords the control plane does not need, are in a file for root alone.
        """
        write_file(self.layout.registries / registries.SETTINGS, msgspec.json.encode(self.registries), 0o600)
        public = msgspec.structs.replace(self, registries={})
        data = msgspec.json.format(msgspec.json.encode(public)) + b"\n"
        group = -1 if self.is_worker or self.prefix != "/" else _account_group()
        write_file(self.layout.settings, data, 0o600 if group == -1 else 0o640, group)


def _account_group() -> int:
    """Return the group of the control plane's account, -1 if this machine has none."""
    account = _account()
    return -1 if account is None else account.pw_gid


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return None


def load(prefix: str = "/") -> Settings | None:
    """Return the settings of the cluster that was brought up here, None if there is none. Raise WherryError."""
    path = Layout(Path(prefix)).settings
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Settings)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            private = (found.layout.registries / registries.SETTINGS).read_bytes()
            found = msgspec.structs.replace(found, registries=msgspec.json.decode(private, type=dict[str, Registry]))
        return found
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise WherryError(f"{path} is for root alone, since URLs in it may have passwords: run it with sudo") from error
    except msgspec.MsgspecError as error:
        raise WherryError(
            f"{path} is damaged ({error}): remove it and run `wherry up` with your options again, or `wherry reset`"
        ) from error


def complete(settings: Settings, default_address: str) -> Settings:
    """Check the choices and fill in what follows from the machine; raises WherryError with the problem and the fix."""
    changes: dict[str, Any] = {}
    _check_tracing(settings)
    if settings.logging_format not in ("text", "json"):
        raise WherryError(f"--logging-format {settings.logging_format}: it is either text or json")
    name = settings.node_name or socket.gethostname().lower()
    if problems := names.dns1123_subdomain(name):
        raise WherryError(f"node name {name!r}: {problems[0]}; choose one with --node-name")
    changes["node_name"] = name
    services = ranges.networks("--service-cidr", settings.service_cidr)
    pods = ranges.networks("--pod-cidr", settings.pod_cidr)
    ranges.check(services, pods)
    if settings.cluster_dns != NO_DNS:
        changes["cluster_dns"] = ranges.cluster_dns(settings.cluster_dns, services)
    address = settings.node_ip or default_address
    if not address:
        raise WherryError("this machine has no address that others could reach: name it with --node-ip")
    if settings.second_node_ip and "," not in address:
        address += f",{settings.second_node_ip}"
    first, *others = ranges.node_addresses(address, (*services, *pods))
    changes |= {"node_ip": first, "second_node_ip": "".join(others)}
    if not settings.is_worker and ipaddress.ip_address(first).version != services[0].version:
        raise WherryError(
            f"--node-ip {first}: the first address of a machine of the control plane and the first --service-cidr, "
            f"{services[0]}, are of one family"
        )
    if settings.node_routes not in ("auto", "host-gw", "vxlan", "none"):
        raise WherryError(f"--node-routes {settings.node_routes}: it is one of auto, host-gw, vxlan and none")
    _check_network(settings)
    _check_numbers(settings)
    if settings.resolv_conf != Settings().resolv_conf and not Path(settings.resolv_conf).is_file():
        raise WherryError(f"--resolv-conf {settings.resolv_conf}: there is no such file")
    for host, mirror in settings.registry_mirrors.items():
        if problem := registries.problem_of(host, Registry(mirrors=[mirror])):
            raise WherryError(f"--registry-mirror {host}={mirror}: {problem}")
    if settings.runtime_endpoint and any(one.needs_hosts_toml for one in settings.all_registries.values()):
        raise WherryError(
            "--registry-mirror and `registries` are for Wherry's own containerd: "
            f"write the hosts.toml of the one at {settings.runtime_endpoint}, and use --unset registry-mirror"
        )
    try:
        PortRanges.parse(settings.load_balancer_ports)
    except ValueError as error:
        raise WherryError(f"--load-balancer-ports {settings.load_balancer_ports}: {error}") from error
    addons.check_disabled(settings.disable)
    check_store(settings)
    if not settings.is_worker:
        named, account = bool(settings.snapshot_folder), _account()
        group, user = (-1, -1) if account is None else (account.pw_gid, account.pw_uid)
        snapshot_options.check(settings.snapshot_options, group, user, named=named)
    return msgspec.structs.replace(settings, **changes)


def _check_tracing(settings: Settings) -> None:
    options = (("endpoint", settings.tracing_endpoint), ("samplingRatePerMillion", settings.tracing_sampling_rate))
    found = TracingConfiguration(settings.tracing_endpoint, settings.tracing_sampling_rate)
    for problem in tracing.problems(found):
        field, _, why = problem.partition(": Invalid value: ")
        option = "--tracing-endpoint" if field == "endpoint" else "--tracing-sampling-rate"
        raise WherryError(f"{option} {dict(options)[field]}: {why.partition(': ')[2]}")


def _check_network(settings: Settings) -> None:
    if settings.pod_network not in ("wherry", "none"):
        raise WherryError(f"--pod-network {settings.pod_network}: it is either wherry or none")
    if settings.proxy not in ("wherry", "upstream", "none"):
        raise WherryError(f"--proxy {settings.proxy}: it is one of wherry, upstream and none")
    if settings.dns not in ("proxy", "alone", "none"):
        raise WherryError(f"--dns {settings.dns}: it is one of proxy, alone and none")
    if settings.proxy_mode not in ("iptables", "nftables", "ipvs", "auto"):
        raise WherryError(f"--proxy-mode {settings.proxy_mode}: it is one of iptables, nftables, ipvs and auto")
    if settings.proxy == "upstream" and settings.proxy_mode == "auto":
        raise WherryError("--proxy-mode auto: upstream's proxy has no such mode; choose iptables, nftables or ipvs")


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


def _check_numbers(settings: Settings) -> None:
    if settings.max_pods < 1:
        raise WherryError(f"--max-pods {settings.max_pods}: it is at least 1")
    used: dict[int, str] = {}
    for name in _PORTS:
        port, option = getattr(settings, name), "--" + name.replace("_", "-")
        if port == 0 and name in _OPTIONAL_PORTS:
            continue
        if not 0 < port < 65536:
            raise WherryError(f"{option} {port}: a port is between 1 and 65535")
        if port in used:
            raise WherryError(f"{option} {port}: this is {used[port]}, too")
        used[port] = option


OF_A_NODE = frozenset(
    "prefix node_ip second_node_ip kubelet_port kubelet_healthz_port proxy_healthz_port proxy_metrics_port "
    "dns_metrics_port pod_network proxy dns "
    "runtime_endpoint sandbox_image registry_mirrors registries resolv_conf max_pods logging_format "
    "tracing_endpoint tracing_sampling_rate".split()
)
"""Settings that a worker decides for itself."""


def check_worker(before: Settings, given: dict[str, Any]) -> None:
    """Raise WherryError if a worker gets options that it cannot decide: the cluster's options, or another name."""
    if not before.is_worker:
        return
    if given.get("node_name", before.node_name) != before.node_name:
        raise WherryError(
            f"this machine is node {before.node_name}: to give it another name, `wherry reset` it and join again"
        )
    others = sorted(given.keys() - OF_A_NODE - {"node_name"})
    if others:
        option = "--" + {"names": "name"}.get(others[0], others[0]).replace("_", "-")
        raise WherryError(f"{option} is the cluster's, not a worker's: it is for `wherry up` on the first machine")


def check_store(settings: Settings) -> None:
    """Raise WherryError if the choice of a storage engine does not hold together."""
    if settings.store not in ("sqlite", "etcd"):
        raise WherryError(f"--store {settings.store}: it is either sqlite or etcd")
    if settings.store == "etcd" and not settings.etcd_servers:
        raise WherryError("--store etcd needs --etcd-servers, as in https://10.0.0.1:2379,https://10.0.0.2:2379")
    if settings.store == "sqlite" and settings.etcd_servers:
        raise WherryError("--etcd-servers is for --store etcd")
    if bool(settings.etcd_certfile) != bool(settings.etcd_keyfile):
        raise WherryError("--etcd-certfile and --etcd-keyfile go together: name both")
    for option in ("etcd_cafile", "etcd_certfile", "etcd_keyfile"):
        path = getattr(settings, option)
        if path and not Path(path).is_file():
            raise WherryError(f"--{option.replace('_', '-')} {path}: there is no such file")
