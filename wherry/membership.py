"""The commands by which machines come to a cluster: `wherry join` on the new one, `wherry token` on the first."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from kube import bootstrap_tokens
from kube.bootstrap_tokens import CONTROL_PLANE_GROUP, NODE_GROUP
from wherry import config_file, name_completion, options, output, wanted
from wherry import settings as saved
from wherry.command_options import options_of
from wherry.errors import UsageError, WherryError
from wherry.layout import Layout
from wherry.settings import Settings
from wherry.terminal import console

token_app = typer.Typer(no_args_is_help=True, help="Create, list and delete tokens for joining machines.")


def root() -> None:
    """Raise WherryError for other users."""
    if os.geteuid() != 0:
        raise WherryError("this needs root: run it with sudo")


def installed(prefix: str) -> Settings:
    """Return this machine's settings; WherryError if it is in no cluster."""
    found = saved.load(prefix)
    if found is None:
        raise WherryError("there is no cluster on this machine: `wherry up` makes one")
    return found


def control_plane(prefix: str) -> Settings:
    """Return the settings of a machine that has the administrator's rights; WherryError on any other."""
    settings = installed(prefix)
    if settings.is_worker:
        raise WherryError(
            f"this machine is a worker of the cluster at {settings.joined}: run this on the first machine"
        )
    return settings


def join(
    server: Annotated[
        str, typer.Argument(help="URL of the cluster's API server, as https://10.0.0.1:6443.", show_default=False)
    ] = "",
    token: Annotated[str, typer.Option(help="Token that `wherry token create` printed.", show_default=False)] = "",
    discovery_token_ca_cert_hash: Annotated[
        str, typer.Option(help="Hash of the cluster's CA (sha256:...), printed with the token.", show_default=False)
    ] = "",
    *,
    control_plane: Annotated[
        bool, typer.Option("--control-plane", help="Join the control plane. The cluster must be stored in etcd.")
    ] = False,
    certificate_key: Annotated[
        str, typer.Option(help="With --control-plane: key of the shared certificates.", show_default=False)
    ] = "",
    prefix: options.Prefix = "/",
    node_name: options.NodeName = "",
    node_ip: options.ServerNodeIp = "",
    api_port: options.MemberApiPort = None,
    kubelet_port: options.KubeletPort = None,
    kubelet_healthz_port: options.KubeletHealthzPort = None,
    proxy_healthz_port: options.ProxyHealthzPort = None,
    proxy_metrics_port: options.ProxyMetricsPort = None,
    controller_manager_port: options.MemberControllerManagerPort = None,
    scheduler_port: options.MemberSchedulerPort = None,
    dns_metrics_port: options.DnsMetricsPort = None,
    runtime_endpoint: options.RuntimeEndpoint = "",
    sandbox_image: options.SandboxImage = "",
    resolv_conf: options.ResolvConf = "",
    registry_mirror: options.RegistryMirror = None,
    name: options.MemberNames = None,
    max_pods: options.MaxPods = None,
    logging_format: options.LoggingFormat = "",
    tracing_endpoint: options.TracingEndpoint = "",
    tracing_sampling_rate: options.TracingSamplingRate = None,
) -> None:
    """Join this machine to a cluster as a node.

    Waits until the node is Ready. Options may be set in /etc/wherry/config.yaml, too.
    """
    from wherry import join as joining
    from wherry import other_network, other_proxy

    arguments = {name: value for name, value in locals().items() if value or type(value) is int}
    root()
    known = options_of(join)
    file = config_file.read(Layout(Path(prefix)).config, known, ignored=wanted.OF_UP)
    chosen = {"server": "", "token": "", "discovery_token_ca_cert_hash": "", **file.arguments, **arguments}
    role = "control-plane" if chosen.get("control_plane") else "worker"
    flags = wanted.given(arguments)
    settings = wanted.merge(Settings(prefix=prefix), file, flags, known, joining=role)
    with file.located({name.replace("_", "-") for name in arguments}):
        joining.require_valid(settings, role, chosen)
        credentials = joining.credentials(
            chosen["server"],
            chosen["token"],
            chosen["discovery_token_ca_cert_hash"],
            control_plane=chosen.get("control_plane", False),
            certificate_key=chosen.get("certificate_key", ""),
        )
    before = saved.load(prefix)
    if before is not None:
        raise WherryError(
            f"this machine already is node {before.node_name} of the cluster at {before.server}: `wherry up` starts it, "
            "`wherry reset` makes it free to join"
        )
    with file.located(wanted.names(flags, known)):
        joined = asyncio.run(joining.join(settings, credentials))
    other_proxy.describe(joined)
    other_network.describe(joined)


@token_app.command("create")
def create(
    token: Annotated[str, typer.Argument(help="The token. Default: a random one.", show_default=False)] = "",
    prefix: options.Prefix = "/",
    ttl: Annotated[str, typer.Option(help="Time until it expires, as 24h or 1h30m; 0: never.")] = "24h",
    description: Annotated[str, typer.Option(help="Description for people. Default: none.", show_default=False)] = "",
    *,
    print_join_command: Annotated[
        bool, typer.Option("--print-join-command", help="Print the whole `wherry join` command.")
    ] = False,
    for_control_plane: Annotated[
        bool,
        typer.Option(
            "--control-plane", help="Print the command for another member of the control plane. Valid for two hours."
        ),
    ] = False,
) -> None:
    """Create a token and print it."""
    from wherry import certificate_bundle, cluster, published, tokens

    root()
    settings = control_plane(prefix)
    if for_control_plane:
        bundle, key = certificate_bundle.collect(settings), certificate_bundle.new_key()
    lifetime = certificate_bundle.LIFETIME if for_control_plane else tokens.lifetime(ttl)
    try:
        wanted = bootstrap_tokens.parse(token) if token else None
    except bootstrap_tokens.TokenError as error:
        raise UsageError(f"{token}: {error}") from error

    async def work() -> bootstrap_tokens.Token:
        async with cluster.admin(settings) as client:
            if not for_control_plane:
                return await tokens.create(client, lifetime, description, token=wanted)
            await published.publish(client, settings)
            made = await tokens.create(client, lifetime, description, (NODE_GROUP, CONTROL_PLANE_GROUP), wanted)
            await certificate_bundle.upload(client, bundle, key, made)
            return made

    made = asyncio.run(work())
    line = tokens.join_command(settings, made) if print_join_command or for_control_plane else str(made)
    if for_control_plane:
        line += f" --control-plane --certificate-key {key}"
    console.print(line, soft_wrap=True)


@token_app.command("list")
def show(prefix: options.Prefix = "/", format: options.Output = "table") -> None:
    """List tokens."""
    from wherry import cluster, tokens

    output.check(format)
    root()
    settings = control_plane(prefix)

    async def work() -> list[tokens.Known]:
        async with cluster.admin(settings) as client:
            return await tokens.known(client)

    output.show(asyncio.run(work()), tokens.COLUMNS, format, tokens.as_data)


@token_app.command("delete")
def delete(
    token: Annotated[
        list[str],
        typer.Argument(help="Tokens or their IDs (the part before the dot).", autocompletion=name_completion.tokens),
    ],
    prefix: options.Prefix = "/",
) -> None:
    """Delete tokens. Nodes that joined with them stay."""
    from wherry import cluster, tokens

    root()
    settings = control_plane(prefix)

    async def work(text: str) -> str:
        async with cluster.admin(settings) as client:
            return await tokens.delete(client, text)

    for text in token:
        console.print(f'bootstrap token "{asyncio.run(work(text))}" deleted')
