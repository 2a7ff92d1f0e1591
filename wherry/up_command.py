"""The command `wherry up`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from wherry import addons, config_file, options, wanted
from wherry import settings as saved
from wherry.command_options import options_of
from wherry.errors import OptionError, WherryError
from wherry.layout import Layout
from wherry.membership import join, root
from wherry.settings import Settings
from wherry.terminal import console

Unset = Annotated[
    list[str] | None,
    typer.Option(
        "--unset",
        help="Option to reset to its default, for example max-pods. May be repeated. Default: none.",
        show_default=False,
    ),
]


def up(
    prefix: options.Prefix = "/",
    node_name: options.NodeName = "",
    node_ip: options.NodeIp = "",
    api_port: options.ApiPort = None,
    kubelet_port: options.KubeletPort = None,
    kubelet_healthz_port: options.KubeletHealthzPort = None,
    proxy_healthz_port: options.ProxyHealthzPort = None,
    proxy_metrics_port: options.ProxyMetricsPort = None,
    controller_manager_port: options.ControllerManagerPort = None,
    scheduler_port: options.SchedulerPort = None,
    dns_metrics_port: options.DnsMetricsPort = None,
    pod_cidr: options.PodCidr = "",
    service_cidr: options.ServiceCidr = "",
    cluster_domain: options.ClusterDomain = "",
    cluster_dns: options.ClusterDns = "",
    pod_network: options.PodNetwork = "",
    proxy: options.Proxy = "",
    dns: options.Dns = "",
    proxy_mode: options.ProxyMode = "",
    node_routes: options.NodeRoutes = "",
    service_load_balancer: options.ServiceLoadBalancer = None,
    load_balancer_ports: options.LoadBalancerPorts = "",
    disable: options.Disable = None,
    runtime_endpoint: options.RuntimeEndpoint = "",
    sandbox_image: options.SandboxImage = "",
    resolv_conf: options.ResolvConf = "",
    registry_mirror: options.RegistryMirror = None,
    name: options.Names = None,
    max_pods: options.MaxPods = None,
    logging_format: options.LoggingFormat = "",
    tracing_endpoint: options.TracingEndpoint = "",
    tracing_sampling_rate: options.TracingSamplingRate = None,
    store: options.Store = "",
    etcd_servers: options.EtcdServers = "",
    etcd_cafile: options.EtcdCafile = "",
    etcd_certfile: options.EtcdCertfile = "",
    etcd_keyfile: options.EtcdKeyfile = "",
    etcd_prefix: options.EtcdPrefix = "",
    snapshot_schedule: options.SnapshotSchedule = "",
    snapshot_retention: options.SnapshotRetention = None,
    snapshot_folder: options.SnapshotFolder = "",
    snapshot_s3_bucket: options.SnapshotS3Bucket = "",
    snapshot_s3_endpoint: options.SnapshotS3Endpoint = "",
    snapshot_s3_region: options.SnapshotS3Region = "",
    snapshot_s3_folder: options.SnapshotS3Folder = "",
    snapshot_s3_credentials: options.SnapshotS3Credentials = "",
    snapshot_s3_ca: options.SnapshotS3Ca = "",
    snapshot_s3_insecure: options.SnapshotS3Insecure = None,
    snapshot_s3_timeout: options.SnapshotS3Timeout = None,
    unset: Unset = None,
) -> None:
    """Create a cluster on this machine, or start it again.

    Waits until it is ready. Options may be set in /etc/wherry/config.yaml, too.
    """
    from wherry.up import up as bring_up

    flags = wanted.given(locals())
    root()
    known = options_of(up)
    before = saved.load(prefix)
    file = config_file.read(Layout(Path(prefix)).config, options_of(join) | known)
    if before is None or not before.joined:
        file.require(known, "wherry up")
    if before is not None and before.configured and not file.exists:
        console.print(f"there is no {file.path}: the options that it had stay in force", soft_wrap=True)
    settings = wanted.merge(before or Settings(prefix=prefix), file, flags, known, unset or ())
    with file.located(wanted.names(flags, known)):
        if before is not None and settings.store != before.store:
            raise WherryError(
                f"--store {settings.store}: this cluster is stored in {before.store}; `wherry store migrate` moves it to etcd, "
                "`wherry reset` removes it"
            )
        for sentence in addons.unknown(settings.disable, settings.layout.addons):
            if file.lines.get("disable") and "disable" not in flags:
                sentence = f"{file.place('disable')}: {sentence[2:]}"
            elif "disable" not in flags:
                sentence += "; `wherry up --unset disable` takes the option back"
            console.print(sentence, soft_wrap=True)
        try:
            asyncio.run(bring_up(settings))
        except OptionError:  # nothing is saved
            raise
        except WherryError as error:
            back = wanted.taken_back(before, saved.load(prefix), known, file.lines)
            raise WherryError(f"{error}{back}") from error
