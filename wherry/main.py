"""The `wherry` command. `wherry server|agent|proxy|dns` run one daemon in this process, without the commands below."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wherry import membership
from wherry import settings as saved
from wherry.errors import WherryError
from wherry.image_commands import image_app
from wherry.membership import Prefix, control_plane, installed, mirrors, root
from wherry.progress import console, errors
from wherry.settings import Settings
from wherry.store_commands import snapshot_app, store_app

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A Kubernetes that a person can read.")
app.add_typer(image_app, name="image")
app.add_typer(snapshot_app, name="snapshot")
app.add_typer(store_app, name="store")
app.add_typer(membership.token_app, name="token")
app.command()(membership.join)


@app.command()
def up(
    prefix: Prefix = "/",
    node_name: Annotated[str, typer.Option(help="The node's name; the host name by default.")] = "",
    node_ip: Annotated[str, typer.Option(help="The node's address; that of the default route by default.")] = "",
    api_port: int | None = None,
    kubelet_port: int | None = None,
    kubelet_healthz_port: int | None = None,
    proxy_healthz_port: int | None = None,
    proxy_metrics_port: int | None = None,
    dns_metrics_port: int | None = None,
    pod_cidr: Annotated[str, typer.Option(help="The range that pods' addresses come from.")] = "",
    service_cidr: Annotated[str, typer.Option(help="The range that Services' addresses come from.")] = "",
    cluster_domain: str = "",
    cluster_dns: Annotated[str, typer.Option(help="Where pods ask for names; the 10th Service address.")] = "",
    proxy: Annotated[str, typer.Option(help="Who proxies Services: wherry, upstream (your kube-proxy) or none.")] = "",
    dns: Annotated[str, typer.Option(help="Where cluster DNS runs: in the proxy, or alone.")] = "",
    proxy_mode: Annotated[str, typer.Option(help="iptables, nftables, ipvs or auto.")] = "",
    node_routes: Annotated[str, typer.Option(help="How pods of other nodes are reached.")] = "",
    service_load_balancer: Annotated[
        bool | None, typer.Option(help="Give Services of type LoadBalancer the nodes' addresses.")
    ] = None,
    load_balancer_ports: Annotated[
        str, typer.Option(help="The ports they may have: numbers and ranges, commas between.")
    ] = "",
    runtime_endpoint: Annotated[str, typer.Option(help="Use this containerd (unix://...), not one of our own.")] = "",
    sandbox_image: Annotated[str, typer.Option(help="An image for pod sandboxes; one is built in.")] = "",
    resolv_conf: Annotated[str, typer.Option(help="File with the resolvers for names outside of the cluster.")] = "",
    registry_mirror: Annotated[list[str] | None, typer.Option(help="HOST=URL: ask URL for images of HOST.")] = None,
    name: Annotated[list[str] | None, typer.Option(help="One more name for the API server's certificate.")] = None,
    max_pods: int | None = None,
    logging_format: Annotated[str, typer.Option(help="How logs are written: text or json.")] = "",
    store: Annotated[str, typer.Option(help="Where objects are kept: sqlite (a file) or etcd.")] = "",
    etcd_servers: Annotated[str, typer.Option(help="URLs of etcd's members, with commas between.")] = "",
    etcd_cafile: Annotated[str, typer.Option(help="The CA of etcd's certificates.")] = "",
    etcd_certfile: Annotated[str, typer.Option(help="The certificate to show to etcd.")] = "",
    etcd_keyfile: Annotated[str, typer.Option(help="Its key.")] = "",
    etcd_prefix: Annotated[str, typer.Option(help="The folder of the keys in etcd; /registry by default.")] = "",
) -> None:
    """Make this machine a cluster of one node, or start it again; waits until it serves."""
    from wherry.up import up as bring_up

    root()
    given = {k: v for k, v in locals().items() if k in Settings.__struct_fields__ and v not in ("", None)}
    if registry_mirror:
        given["registry_mirrors"] = mirrors(registry_mirror)
    if name:
        given["names"] = name
    before = saved.load(prefix) or Settings(prefix=prefix)
    saved.check_worker(before, given)
    if saved.load(prefix) is not None and store not in ("", before.store):
        raise WherryError(
            f"this cluster is stored in {before.store}: `wherry store migrate` moves it to etcd, `wherry reset` removes it"
        )
    asyncio.run(bring_up(msgspec.structs.replace(before, **given)))


@app.command()
def down(
    prefix: Prefix = "/",
    *,
    pods: Annotated[bool, typer.Option("--pods", help="Stop and remove all pods too.")] = False,
) -> None:
    """Stop control plane, agent, proxy and containerd. Containers run on unless --pods is given."""
    from wherry import daemons
    from wherry.reset import remove_pods

    root()
    settings = installed(prefix)
    stopped = asyncio.run(daemons.stop(settings))
    console.print("stopped" if stopped else "nothing was running")
    if pods:
        asyncio.run(remove_pods(settings))
        console.print("all pods removed")


@app.command()
def status(prefix: Prefix = "/") -> None:
    """Show what runs; ends with status 1 where something does not."""
    from wherry.status import show

    if not asyncio.run(show(installed(prefix))):
        raise typer.Exit(1)


@app.command()
def check(
    prefix: Prefix = "/",
    *,
    security: Annotated[
        bool, typer.Option("--security", help="Look at the running cluster by the CIS Kubernetes Benchmark.")
    ] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="With --security: text or json.")] = "text",
) -> None:
    """Check that this machine has what a node needs. Each finding comes with its fix."""
    from wherry import check as checks
    from wherry import daemons

    if output not in ("text", "json") or (output == "json" and not security):
        raise WherryError(f"-o {output}: with --security it is text or json")
    if security:
        root()
        _check_security(installed(prefix), output)
        return
    settings = saved.load(prefix) or Settings(prefix=prefix)
    running = any(asyncio.run(daemons.running(settings)).values())
    colours = {"ok": "green", "warning": "yellow", "error": "red"}
    worst = False
    for finding in checks.findings(settings, running=running):
        worst |= finding.level == "error"
        fix = f" → {finding.fix}" if finding.fix else ""
        console.print(f"[{colours[finding.level]}]{finding.level:8}[/]{finding.what}{fix}")
    if worst:
        raise typer.Exit(1)


def _check_security(settings: Settings, output: str) -> None:
    """Print every check of the benchmark; end with status 1 where one fails."""
    from wherry.security import gather, report, table

    results = list(table.results(asyncio.run(gather.facts(settings))))
    if output == "json":
        print(report.as_json(results))
    else:
        colours = {"PASS": "green", "FAIL": "red", "WARN": "yellow", "N/A": "dim"}
        for verdict, line in report.lines(results):
            console.print(line, style=colours.get(verdict), markup=False, soft_wrap=True)
    if any(found.verdict == "FAIL" for _, found in results):
        raise typer.Exit(1)


@app.command()
def kubeconfig(prefix: Prefix = "/") -> None:
    """Print the administrator's kubeconfig."""
    path = control_plane(prefix).layout.admin_kubeconfig
    try:
        sys.stdout.write(path.read_text())
    except PermissionError as error:
        raise WherryError(f"{path} is for root alone: run it with sudo") from error


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
)
def kubectl(context: typer.Context, prefix: Prefix = "/") -> None:
    """Run kubectl as the cluster's administrator; everything after it is kubectl's."""
    from wherry import kubectl as command
    from wherry.layout import Layout

    command.run(context.args, Layout(Path(prefix)).admin_kubeconfig)


@app.command()
def reset(
    prefix: Prefix = "/",
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    keep_data: Annotated[bool, typer.Option(help="Keep the database, certificates and configuration.")] = False,
) -> None:
    """Remove the cluster from this machine: pods, rules, links, mounts and files."""
    from wherry.reset import reset as take_away

    root()
    settings = saved.load(prefix)
    if settings is None:
        console.print("there is no cluster on this machine")
        return
    if not yes and not typer.confirm("Remove the cluster with all that it holds?"):
        raise typer.Exit(1)
    asyncio.run(take_away(settings, keep_data=keep_data))
    if settings.joined:
        console.print(
            f"the cluster may still list this machine: `kubectl delete node {settings.node_name}` takes it out there",
            soft_wrap=True,
        )


def main() -> None:
    """Run the command; an error is printed in one sentence."""
    from kube.errors import StatusError
    from kube.process import CommandError

    if len(sys.argv) > 1 and sys.argv[1] in ("server", "agent", "proxy", "dns"):
        if sys.argv[1] == "server":
            from wherry import allocator

            allocator.adopt()
        from wherry.roles import main as run_role

        run_role()
        return
    try:
        app()
    except (WherryError, CommandError, StatusError) as error:
        errors.print(f"wherry: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
