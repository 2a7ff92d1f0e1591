"""Options that commands share, each declared once with its help text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from wherry import name_completion
from wherry.output import FORMATS


def values(*known: str) -> Callable[[str], list[str]]:
    """Return the completion of an argument or option that has known values."""

    def complete(incomplete: str) -> list[str]:
        return [each for each in known if each.startswith(incomplete)]

    return complete


def _option(
    help: str,
    *names: str,
    known: tuple[str, ...] = (),
    complete: Callable[[typer.Context, str], list[str]] | None = None,
    **more: Any,
) -> Any:
    offered = values(*known) if known else complete
    return typer.Option(*names, help=help, show_default=False, autocompletion=offered, **more)


Prefix = Annotated[str, _option("Root of the installation's files, for a second one on a machine. Default: /.")]
Output = Annotated[
    str, _option("Output format: table, wide, json or yaml. Default: table.", "--output", "-o", known=FORMATS)
]
StatusOutput = Annotated[
    str,
    _option(
        "Output format: text, wide, json or yaml. Default: text.",
        "--output",
        "-o",
        known=("text", "wide", "json", "yaml"),
    ),
]
TextOutput = Annotated[
    str, _option("Output format: text, json or yaml. Default: text.", "--output", "-o", known=("text", "json", "yaml"))
]
Yes = Annotated[bool, _option("Do not ask for confirmation.", "--yes", "-y")]

# -- the machine ----------------------------------------------------------------------------------------------------------
NodeName = Annotated[str, _option("Name of the node. Default: the host name.")]
NodeIp = Annotated[str, _option("Address of the node. Default: that of the default route.")]
ServerNodeIp = Annotated[str, _option("Address of the node. Default: the one that reaches the server.")]
ApiPort = Annotated[int | None, _option("Port of the API server. Default: 6443.")]
MemberApiPort = Annotated[int | None, _option("With --control-plane: port of the API server. Default: 6443.")]
KubeletPort = Annotated[int | None, _option("Port of the kubelet API. Default: 10250.")]
KubeletHealthzPort = Annotated[int | None, _option("Port of the kubelet's health check. Default: 10248.")]
ProxyHealthzPort = Annotated[int | None, _option("Port of the proxy's health check. Default: 10256.")]
ProxyMetricsPort = Annotated[int | None, _option("Port of the proxy's metrics. Default: 10249.")]
ControllerManagerPort = Annotated[
    int | None, _option("Port of the controllers' health and metrics on 127.0.0.1; 0: none. Default: 10257.")
]
SchedulerPort = Annotated[
    int | None, _option("Port of the scheduler's health and metrics on 127.0.0.1; 0: none. Default: 10259.")
]
MemberControllerManagerPort = Annotated[
    int | None,
    _option("With --control-plane: port of the controllers' health and metrics on 127.0.0.1; 0: none. Default: 10257."),
]
MemberSchedulerPort = Annotated[
    int | None,
    _option("With --control-plane: port of the scheduler's health and metrics on 127.0.0.1; 0: none. Default: 10259."),
]
DnsMetricsPort = Annotated[int | None, _option("Port of the metrics of cluster DNS. Default: 9153.")]
MaxPods = Annotated[int | None, _option("Maximum number of pods on the node. Default: 110.")]
RuntimeEndpoint = Annotated[str, _option("Socket of another containerd (unix://...). Default: one of Wherry's own.")]
SandboxImage = Annotated[str, _option("Image of pod sandboxes. Default: a built-in one.")]
ResolvConf = Annotated[str, _option("File with the DNS servers of the machine. Default: /etc/resolv.conf.")]
RegistryMirror = Annotated[
    list[str] | None, _option("HOST=URL: mirror of an image registry. May be repeated. Default: none.")
]
LoggingFormat = Annotated[str, _option("Log format: text or json. Default: text.", known=("text", "json"))]
TracingEndpoint = Annotated[
    str, _option("Address of an OpenTelemetry collector (OTLP over gRPC), as 127.0.0.1:4317. Default: none.")
]
TracingSamplingRate = Annotated[
    int | None, _option("Traces out of a million that are recorded, with --tracing-endpoint. Default: 10000.")
]
Names = Annotated[
    list[str] | None,
    _option("Additional name of the API server's certificate. May be repeated. Default: none.", "--name"),
]

MemberNames = Annotated[
    list[str] | None,
    _option(
        "With --control-plane: additional name of the API server's certificate. May be repeated. Default: none.",
        "--name",
    ),
]

# -- the cluster ----------------------------------------------------------------------------------------------------------
PodCidr = Annotated[str, _option("Address range of pods. Default: 10.244.0.0/16.")]
ServiceCidr = Annotated[str, _option("Address range of Services. Default: 10.96.0.0/12.")]
ClusterDomain = Annotated[str, _option("DNS domain of the cluster. Default: cluster.local.")]
ClusterDns = Annotated[str, _option("Address of cluster DNS, or none. Default: the 10th one of the Service range.")]
PodNetwork = Annotated[
    str,
    _option(
        "Pod network: wherry, none (your CNI plugin), or the name of its CNI network. Default: wherry.",
        known=("wherry", "none"),
    ),
]
Proxy = Annotated[
    str,
    _option(
        "Service proxy: wherry, upstream (your kube-proxy) or none. Default: wherry.",
        known=("wherry", "upstream", "none"),
    ),
]
Dns = Annotated[
    str,
    _option(
        "Process of cluster DNS: proxy, alone or none (your own DNS). Default: proxy.", known=("proxy", "alone", "none")
    ),
]
ProxyMode = Annotated[
    str,
    _option(
        "Mode of the proxy: iptables, nftables, ipvs or auto. Default: iptables.",
        known=("iptables", "nftables", "ipvs", "auto"),
    ),
]
NodeRoutes = Annotated[
    str,
    _option(
        "Routes to pods of other nodes: host-gw, vxlan, auto (host-gw on a shared link) or none. Default: auto.",
        known=("host-gw", "vxlan", "auto", "none"),
    ),
]
ServiceLoadBalancer = Annotated[
    bool | None, typer.Option(help="Assign the nodes' addresses to Services of type LoadBalancer. Default: yes.")
]
LoadBalancerPorts = Annotated[
    str, _option("Ports of load balancers: numbers and ranges, separated by commas. Default: 80,443,1024-29999.")
]
Disable = Annotated[
    list[str] | None,
    _option(
        "Addon to disable: local-path, service-load-balancer, metrics, gateway, or the name of a file of addons. "
        "May be repeated. Default: none.",
        complete=name_completion.addons,
    ),
]

# -- the store ------------------------------------------------------------------------------------------------------------
Store = Annotated[str, _option("Storage of the objects: sqlite or etcd. Default: sqlite.", known=("sqlite", "etcd"))]
EtcdServers = Annotated[str, _option("URLs of etcd's members, separated by commas. Default: none.")]
EtcdCafile = Annotated[str, _option("File with the CA of etcd's certificates. Default: none.")]
EtcdCertfile = Annotated[str, _option("File with the client certificate for etcd. Default: none.")]
EtcdKeyfile = Annotated[str, _option("File with the key of the client certificate. Default: none.")]
EtcdPrefix = Annotated[str, _option("Prefix of the keys in etcd. Default: /registry.")]

# -- snapshots ------------------------------------------------------------------------------------------------------------
SnapshotSchedule = Annotated[
    str,
    _option(
        "Cron schedule of snapshots in the machine's time zone, as '0 3 * * *' or @daily, or off. "
        "Default: 0 */12 * * * with SQLite, off with etcd."
    ),
]
SnapshotRetention = Annotated[int | None, _option("Number of scheduled snapshots that are kept. Default: 5.")]
SnapshotFolder = Annotated[str, _option("Folder of snapshots. Default: /var/lib/wherry/snapshots.")]
SnapshotS3Bucket = Annotated[str, _option("Bucket of an S3 service that snapshots are copied to. Default: none.")]
SnapshotS3Endpoint = Annotated[str, _option("URL of the S3 service. Default: that of AWS in the region.")]
SnapshotS3Region = Annotated[str, _option("Region of the bucket. Default: us-east-1.")]
SnapshotS3Folder = Annotated[str, _option("Folder in the bucket. Default: none.")]
SnapshotS3Credentials = Annotated[
    str, _option("File with aws_access_key_id and aws_secret_access_key. Default: /etc/wherry/s3-credentials.")
]
SnapshotS3Ca = Annotated[str, _option("File with the CA of the S3 service. Default: the CAs of the machine.")]
SnapshotS3Insecure = Annotated[
    bool | None,
    typer.Option(
        help="Allow an S3 service without TLS, or with a certificate that is not verified. Default: no.",
        show_default=False,
    ),
]
SnapshotS3Timeout = Annotated[int | None, _option("Seconds that a request to the S3 service may take. Default: 300.")]
