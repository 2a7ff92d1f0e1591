"""The `wherry` command. `wherry server|agent|proxy|dns` run one role and bypass everything below."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from wherry import membership
from wherry import settings as saved
from wherry.errors import WherryError
from wherry.membership import Prefix, control_plane, mirrors
from wherry.membership import root as _root
from wherry.progress import console, errors
from wherry.settings import Settings

T = TypeVar("T")
app = typer.Typer(no_args_is_help=True, add_completion=False, help="A Kubernetes that a person can read.")
image_app = typer.Typer(no_args_is_help=True, help="Images in this machine's containerd.")
app.add_typer(image_app, name="image")
snapshot_app = typer.Typer(no_args_is_help=True, help="Copies of all that the cluster stores.")
app.add_typer(snapshot_app, name="snapshot")
store_app = typer.Typer(no_args_is_help=True, help="Where the cluster stores its objects.")
app.add_typer(store_app, name="store")
app.add_typer(membership.token_app, name="token")
app.command()(membership.join)


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _settings(prefix: str) -> Settings:
    found = saved.load(prefix)
    if found is None:
        raise WherryError("there is no cluster on this machine: `wherry up` makes one")
    return found


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
    resolv_conf: Annotated[str, typer.Option(help="Whose resolvers are asked for names outside.")] = "",
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

    _root()
    given = {k: v for k, v in locals().items() if k in Settings.__struct_fields__ and v not in ("", None)}
    if registry_mirror:
        given["registry_mirrors"] = mirrors(registry_mirror)
    if name:
        given["names"] = name
    before = saved.load(prefix) or Settings(prefix=prefix)
    saved.check_worker(before, given)
    if saved.load(prefix) is not None and store not in ("", before.store):
        raise WherryError(
            f"this cluster is stored in {before.store}: `wherry store migrate` moves it to etcd, `wherry reset` begins anew"
        )
    _run(bring_up(msgspec.structs.replace(before, **given)))


@app.command()
def down(
    prefix: Prefix = "/",
    pods: Annotated[bool, typer.Option("--pods", help="Stop and remove all pods too.")] = False,
) -> None:
    """Stop control plane, agent, proxy and containerd. Containers run on unless --pods is given."""
    from wherry import daemons
    from wherry.reset import remove_pods

    _root()
    settings = _settings(prefix)
    stopped = _run(daemons.stop(settings))
    console.print("stopped" if stopped else "nothing was running")
    if pods:
        _run(remove_pods(settings))
        console.print("all pods removed")


@app.command()
def status(prefix: Prefix = "/") -> None:
    """Show what runs; ends with status 1 where something does not."""
    from wherry.status import show

    if not _run(show(_settings(prefix))):
        raise typer.Exit(1)


@app.command()
def check(
    prefix: Prefix = "/",
    security: Annotated[
        bool, typer.Option("--security", help="Look at the running cluster by the CIS Kubernetes Benchmark.")
    ] = False,
    output: Annotated[str, typer.Option("--output", "-o", help="With --security: text or json.")] = "text",
) -> None:
    """Look at this machine: has it what a node needs? Each finding comes with its fix."""
    from wherry import check as checks
    from wherry import daemons

    if output not in ("text", "json") or (output == "json" and not security):
        raise WherryError(f"-o {output}: with --security it is text or json")
    if security:
        _root()
        _check_security(_settings(prefix), output)
        return
    settings = saved.load(prefix) or Settings(prefix=prefix)
    running = any(_run(daemons.running(settings)).values())
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

    results = list(table.results(_run(gather.facts(settings))))
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
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    keep_data: Annotated[bool, typer.Option(help="Keep the database, certificates and configuration.")] = False,
) -> None:
    """Remove the cluster from this machine: pods, rules, links, mounts and files."""
    from wherry.reset import reset as take_away

    _root()
    settings = saved.load(prefix)
    if settings is None:
        console.print("there is no cluster on this machine")
        return
    if not yes and not typer.confirm("Remove the cluster with all that it holds?"):
        raise typer.Exit(1)
    _run(take_away(settings, keep_data=keep_data))
    if settings.joined:
        console.print(
            f"the cluster may still list this machine: `kubectl delete node {settings.node_name}` takes it out there",
            soft_wrap=True,
        )


@image_app.command("load")
def image_load(
    what: Annotated[
        str, typer.Argument(help="An archive (docker save, OCI layout), or an image of the Docker engine.")
    ],
    prefix: Prefix = "/",
) -> None:
    """Bring an image into containerd without a registry."""
    from wherry import containerd

    _root()
    settings = _settings(prefix)
    if Path(what).exists() or what.endswith(".tar"):
        names = _run(containerd.load_archive(settings, Path(what)))
    else:
        names = _run(containerd.load_from_docker(settings, what))
    for name in names:
        console.print(name)


@image_app.command("list")
def image_list(prefix: Prefix = "/") -> None:
    """List the images of containerd."""
    from wherry import containerd

    for name in _run(containerd.image_names(_settings(prefix))):
        console.print(name)


@snapshot_app.command("save")
def snapshot_save(
    path: Annotated[Path | None, typer.Argument(help="The file to write; one named after the time by default.")] = None,
    prefix: Prefix = "/",
) -> None:
    """Save all objects in one file, while everything runs."""
    from wherry import snapshot

    _root()
    made = _run(snapshot.save(control_plane(prefix), path))
    console.print(f"{made.path}: {made.keys} keys at revision {made.revision}, {made.size} bytes", soft_wrap=True)


@snapshot_app.command("restore")
def snapshot_restore(
    path: Annotated[Path, typer.Argument(help="A file that `wherry snapshot save` wrote.")],
    prefix: Prefix = "/",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Make the cluster what a snapshot has. Its daemons are stopped for a moment; containers run on."""
    from wherry import snapshot

    _root()
    settings = control_plane(prefix)
    if not yes and not typer.confirm("Replace all that the cluster has stored since?"):
        raise typer.Exit(1)
    revision = _run(snapshot.restore(settings, path))
    console.print(f"restored; the cluster goes on at revision {revision}")


@snapshot_app.command("list")
def snapshot_list(prefix: Prefix = "/") -> None:
    """List the snapshots in the snapshot folder."""
    from wherry import snapshot

    _root()
    for found in snapshot.snapshots(control_plane(prefix)):
        console.print(f"{found.path}  {found.keys} keys  revision {found.revision}  {found.size} bytes", soft_wrap=True)


@store_app.command("migrate")
def store_migrate(
    etcd_servers: Annotated[str, typer.Option(help="URLs of etcd's members, with commas between.")],
    prefix: Prefix = "/",
    etcd_cafile: Annotated[str, typer.Option(help="The CA of etcd's certificates.")] = "",
    etcd_certfile: Annotated[str, typer.Option(help="The certificate to show to etcd.")] = "",
    etcd_keyfile: Annotated[str, typer.Option(help="Its key.")] = "",
    etcd_prefix: Annotated[str, typer.Option(help="The folder of the keys in etcd.")] = "/registry",
) -> None:
    """Move the cluster's objects from SQLite to an etcd that is empty. Containers run on."""
    from wherry import snapshot

    given = {k: v for k, v in locals().items() if k in Settings.__struct_fields__ and k != "prefix"}
    _root()
    settings = control_plane(prefix)
    wanted = msgspec.structs.replace(settings, store="etcd", **given)
    saved.check_store(wanted)
    keys = _run(snapshot.migrate(settings, wanted))
    console.print(f"moved {keys} keys to etcd; the cluster is stored there from now on")


def main() -> None:
    """Run the command; what goes wrong is said in one sentence."""
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
