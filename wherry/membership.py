"""The commands by which machines come to a cluster: `wherry join` on the new one, `wherry token` on the first."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from kube import bootstrap_tokens
from kube.bootstrap_tokens import CONTROL_PLANE_GROUP, NODE_GROUP
from kube.clock import SYSTEM, format_time
from wherry import settings as saved
from wherry.errors import WherryError
from wherry.progress import console
from wherry.settings import Settings

Prefix = Annotated[str, typer.Option(help="Where the installation's files are; for a second one on the machine.")]
token_app = typer.Typer(no_args_is_help=True, help="Tokens that machines join the cluster with.")


def root() -> None:
    """Raise WherryError for other users."""
    if os.geteuid() != 0:
        raise WherryError("this needs root: run it with sudo")


def mirrors(pairs: list[str]) -> dict[str, str]:
    """Read --registry-mirror HOST=URL."""
    found = [pair.partition("=") for pair in pairs]
    if bad := [host for host, _, url in found if not url]:
        raise WherryError(f"--registry-mirror {bad[0]}: write HOST=URL, as in docker.io=http://127.0.0.1:5000")
    return {host: url for host, _, url in found}


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
    server: Annotated[str, typer.Argument(help="The API server of the cluster, as https://10.0.0.1:6443.")],
    token: Annotated[str, typer.Option(help="What `wherry up` or `wherry token create` printed.")] = "",
    discovery_token_ca_cert_hash: Annotated[
        str, typer.Option(help="sha256:... of the cluster's CA, printed too.")
    ] = "",
    *,
    control_plane: Annotated[
        bool, typer.Option("--control-plane", help="Be a member of the control plane; needs a cluster stored in etcd.")
    ] = False,
    certificate_key: Annotated[str, typer.Option(help="Opens the certificates that its members share.")] = "",
    prefix: Prefix = "/",
    node_name: Annotated[str, typer.Option(help="The node's name; the host name by default.")] = "",
    node_ip: Annotated[str, typer.Option(help="The node's address; the one towards the server by default.")] = "",
    api_port: Annotated[int | None, typer.Option(help="With --control-plane: the API server's port.")] = None,
    kubelet_port: int | None = None,
    kubelet_healthz_port: int | None = None,
    proxy_healthz_port: int | None = None,
    proxy_metrics_port: int | None = None,
    dns_metrics_port: int | None = None,
    runtime_endpoint: Annotated[str, typer.Option(help="Use this containerd (unix://...), not one of our own.")] = "",
    sandbox_image: Annotated[str, typer.Option(help="An image for pod sandboxes; one is built in.")] = "",
    resolv_conf: Annotated[str, typer.Option(help="File with the resolvers for names outside of the cluster.")] = "",
    registry_mirror: Annotated[list[str] | None, typer.Option(help="HOST=URL: ask URL for images of HOST.")] = None,
    name: Annotated[list[str] | None, typer.Option(help="With --control-plane: as with `wherry up`.")] = None,
    max_pods: int | None = None,
    logging_format: Annotated[str, typer.Option(help="How logs are written: text or json.")] = "",
) -> None:
    """Make this machine a node of a cluster that runs elsewhere; waits until it is Ready."""
    from wherry import join as joining
    from wherry import other_proxy

    root()
    given = {k: v for k, v in locals().items() if k in Settings.__struct_fields__ and v not in ("", None)}
    if registry_mirror:
        given["registry_mirrors"] = mirrors(registry_mirror)
    if name:
        given["names"] = name
    credentials = joining.credentials(
        server, token, discovery_token_ca_cert_hash, control_plane=control_plane, certificate_key=certificate_key
    )
    before = saved.load(prefix)
    if before is not None:
        raise WherryError(
            f"this machine already is node {before.node_name} of the cluster at {before.server}: `wherry up` starts it, "
            "`wherry reset` makes it free to join"
        )
    other_proxy.describe(asyncio.run(joining.join(Settings(**given), credentials)))


@token_app.command("create")
def create(
    token: Annotated[str, typer.Argument(help="The token to make; a random one by default.")] = "",
    prefix: Prefix = "/",
    ttl: Annotated[str, typer.Option(help="How long it lives, as 24h or 1h30m; 0 is for ever.")] = "24h",
    description: Annotated[str, typer.Option(help="What it is for, as people read it.")] = "",
    *,
    print_join_command: Annotated[bool, typer.Option("--print-join-command", help="Print the whole line.")] = False,
    for_control_plane: Annotated[
        bool,
        typer.Option("--control-plane", help="Print the line for another member of the control plane; for two hours."),
    ] = False,
) -> None:
    """Make a token and print it."""
    from wherry import certificate_bundle, cluster, published, tokens

    root()
    settings = control_plane(prefix)
    if for_control_plane:
        bundle, key = certificate_bundle.collect(settings), certificate_bundle.new_key()
    lifetime = certificate_bundle.LIFETIME if for_control_plane else tokens.lifetime(ttl)
    try:
        wanted = bootstrap_tokens.parse(token) if token else None
    except bootstrap_tokens.TokenError as error:
        raise WherryError(f"{token}: {error}") from error

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
    console.print(line, markup=False, soft_wrap=True)


@token_app.command("list")
def show(prefix: Prefix = "/") -> None:
    """List the tokens that there are."""
    from rich.table import Table

    from wherry import cluster, tokens

    root()
    settings = control_plane(prefix)

    async def work() -> list[tokens.Known]:
        async with cluster.admin(settings) as client:
            return await tokens.known(client)

    table = Table(box=None, header_style="bold")
    for heading in ("TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS"):
        table.add_column(heading, no_wrap=True)
    for entry in asyncio.run(work()):
        left = "<forever>" if entry.expires is None else tokens.left(entry.expires, SYSTEM.now())
        expires = "<never>" if entry.expires is None else format_time(entry.expires)
        usages, groups = ",".join(entry.usages), ",".join(entry.groups)
        table.add_row(str(entry.token), left, expires, usages, entry.description or "<none>", groups)
    console.print(table, soft_wrap=True)


@token_app.command("delete")
def delete(
    token: Annotated[list[str], typer.Argument(help="Tokens, or their first halves.")],
    prefix: Prefix = "/",
) -> None:
    """Delete tokens: joining with them is no longer possible; nodes that have joined stay."""
    from wherry import cluster, tokens

    root()
    settings = control_plane(prefix)

    async def work(text: str) -> str:
        async with cluster.admin(settings) as client:
            return await tokens.delete(client, text)

    for text in token:
        console.print(f'bootstrap token "{asyncio.run(work(text))}" deleted', markup=False)
