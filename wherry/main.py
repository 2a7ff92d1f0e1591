"""The `wherry` command. `wherry server|agent|proxy|dns` run one daemon in this process, without the commands below."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from wherry import admin_kubeconfig, bash_words, encoding, membership, options, os_errors
from wherry import settings as saved
from wherry.addon_commands import addons_app
from wherry.bundle_commands import bundle_app
from wherry.certs_commands import certs_app
from wherry.config_commands import config_app
from wherry.dev_command import dev
from wherry.errors import WherryError
from wherry.image_commands import image_app
from wherry.membership import control_plane, installed, root
from wherry.settings import Settings
from wherry.store_commands import snapshot_app, store_app
from wherry.terminal import confirmed, console, errors
from wherry.tool_commands import COMPLETION, add_tools, enable_completion
from wherry.ui_command import ui
from wherry.up_command import up
from wherry.upgrade_command import upgrade
from wherry.usage import CommandLine
from wherry.why_command import why

app = typer.Typer(
    cls=CommandLine,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A Kubernetes that a person can read.",
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it
    if wanted:
        from wherry import versions

        print(versions.line())
        raise typer.Exit


@app.callback()
def wherry(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """A Kubernetes that a person can read."""


PLUGIN_FILE, PLUGIN_NAME = "kubectl-wherry", "kubectl wherry"
"""File and usage of the plugin of kubectl, which is this command under another name."""

app.command()(up)


@app.command()
def down(
    prefix: options.Prefix = "/",
    *,
    pods: Annotated[bool, typer.Option("--pods", help="Also stop and remove all pods.")] = False,
) -> None:
    """Stop the daemons. Containers keep running, except with --pods."""
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
def status(
    prefix: options.Prefix = "/",
    format: options.StatusOutput = "text",
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show the status again every two seconds.")] = False,
) -> None:
    """Show daemons, nodes and pods.

    Ends with status 1 if a daemon, the API server or a node is not healthy.
    """
    from wherry.status_command import check, show

    check(format, watch=watch)
    if not show(installed(prefix), format, watch=watch):
        raise typer.Exit(1)


@app.command()
def check(
    prefix: options.Prefix = "/",
    format: options.Output = "table",
    *,
    security: Annotated[
        bool, typer.Option("--security", help="Check the running cluster by the CIS Kubernetes Benchmark.")
    ] = False,
) -> None:
    """Check that this machine meets the requirements of a node.

    Ends with status 1 if something is missing, or with --security if a check fails.
    """
    from wherry import check_command, output

    output.check(format)
    if security:
        root()
        well = check_command.security(installed(prefix), format)
    else:
        well = check_command.machine(saved.load(prefix) or Settings(prefix=prefix), format)
    if not well:
        raise typer.Exit(1)


@app.command()
def kubeconfig(prefix: options.Prefix = "/") -> None:
    """Print the administrator's kubeconfig."""
    path = control_plane(prefix).layout.admin_kubeconfig
    try:
        sys.stdout.write(admin_kubeconfig.read(path).decode(errors="replace"))
    except FileNotFoundError as error:
        raise WherryError(f"{path} is missing: {admin_kubeconfig.FIX}") from error


@app.command()
def reset(
    prefix: options.Prefix = "/",
    *,
    yes: options.Yes = False,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Keep the database, certificates and configuration.")
    ] = False,
) -> None:
    """Remove the cluster from this machine.

    Removes pods, rules, links, mounts and files.
    """
    from wherry import damaged_settings, other_installations
    from wherry.reset import reset as take_away

    root()
    settings, problem = damaged_settings.load_or_salvage(prefix)
    if settings is None:
        console.print("there is no cluster on this machine")
        return
    if problem:
        what = "is removed with the options that can be read, and defaults for the others"
        console.print(f"{problem}: the installation {what}", soft_wrap=True)
    other_installations.require_none(settings)
    question = (
        "Remove this machine from the cluster?" if settings.joined else "Remove the cluster with all that it holds?"
    )
    if not yes and not confirmed(question):
        raise typer.Exit(1)
    asyncio.run(take_away(settings, keep_data=keep_data))
    if settings.joined:
        console.print(
            f"the cluster may still list this machine: `kubectl delete node {settings.node_name}` takes it out there",
            soft_wrap=True,
        )


app.command()(membership.join)
app.command()(upgrade)
app.command()(why)
app.command()(ui)
app.command()(dev)
add_tools(app)
app.add_typer(membership.token_app, name="token")
app.add_typer(addons_app, name="addons")
app.add_typer(bundle_app, name="bundle")
app.add_typer(certs_app, name="certs")
app.add_typer(config_app, name="config")
app.add_typer(image_app, name="image")
app.add_typer(snapshot_app, name="snapshot")
app.add_typer(store_app, name="store")


def main() -> None:
    """Run the command; an error is printed in one sentence."""
    encoding.adapt()
    if len(sys.argv) > 1 and sys.argv[1] in ("server", "agent", "proxy", "dns"):
        if sys.argv[1] == "server":
            from wherry import allocator

            allocator.adopt()
        from wherry.roles import main as run_role

        run_role()
        return
    complete: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if COMPLETION in os.environ:
        enable_completion()
        if os.environ[COMPLETION] == "complete_bash":
            complete = bash_words.adapted(os.environ)
    with complete:
        _run()


def _run() -> None:
    from kube.errors import StatusError
    from kube.process import CommandError

    try:
        try:
            if Path(sys.argv[0]).name == PLUGIN_FILE:
                app(prog_name=PLUGIN_NAME)
            else:
                app()
        finally:
            sys.stdout.flush()  # an error at the end of the process would have no sentence
    except (WherryError, CommandError, StatusError) as error:
        _fail(str(error), error.status if isinstance(error, WherryError) else 1)
    except BrokenPipeError:  # whoever read the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _fail(os_errors.sentence(error))


def _fail(text: str, status: int = 1) -> NoReturn:
    errors.print(f"wherry: {os_errors.with_fix(text)}", style="red", soft_wrap=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
