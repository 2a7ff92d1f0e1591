"""Settings of `wherry up`, saved for later commands."""

from __future__ import annotations

import contextlib
import ipaddress
import pwd
from pathlib import Path
from typing import Any

import msgspec

from control import addon_names
from kube import decode_errors
from kube.files import write_file
from kube.port_ranges import LOAD_BALANCERS
from kube.tracing.configuration import TracingConfiguration
from kube.urls import host_port
from wherry import registries, snapshot_options
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.registries import Registry
from wherry.snapshot_options import SnapshotOptions

USER = "wherry"
"""Account of the control plane under systemd."""
NO_DNS = "none"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One machine's choices. Empty strings are filled in by `complete` (option_checks.py)."""

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
    def required_network(self) -> str:
        """Name of the CNI network that another program installs; empty if it may have any name, or is Wherry's."""
        return "" if self.pod_network in ("wherry", "none") else self.pod_network

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
        return () if self.cluster_dns in (NO_DNS, "") else tuple(self.cluster_dns.split(","))

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
        found = account()
        group = -1 if self.is_worker or self.prefix != "/" or found is None else found.pw_gid
        write_file(self.layout.settings, data, 0o600 if group == -1 else 0o640, group)


def account() -> pwd.struct_passwd | None:
    """Return the control plane's account, None if this machine has none."""
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return None


def load(prefix: str = "/") -> Settings | None:
    """Return the settings of the cluster that was brought up here, None if there is none. Raise WherryError."""
    path = Layout(Path(prefix)).settings
    try:
        # The prefix is the caller's: in a copy of an installation the file names the original.
        found = msgspec.structs.replace(msgspec.json.decode(path.read_bytes(), type=Settings), prefix=prefix)
        with contextlib.suppress(FileNotFoundError, PermissionError):
            private = (found.layout.registries / registries.SETTINGS).read_bytes()
            found = msgspec.structs.replace(found, registries=msgspec.json.decode(private, type=dict[str, Registry]))
        return found
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise WherryError(f"{path} is only for root, since URLs in it may have passwords: run it with sudo") from error
    except msgspec.MsgspecError as error:
        raise WherryError(
            f"{path} is damaged ({decode_errors.sentence(error)}): remove it and run `wherry up` with your options again, "
            "or `wherry reset`"
        ) from error


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
