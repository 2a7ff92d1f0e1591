"""Commands that run other programs on this installation or tell about it: kubectl, crictl, ctr, logs, version, completion."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from wherry import options, output, terminal
from wherry.errors import UsageError, WherryError
from wherry.kubectl_completion import KubectlCommand
from wherry.membership import installed, root

COMPLETION = "_WHERRY_COMPLETE"
"""Environment variable by which shells ask for completions."""
SHELLS = ("bash", "zsh", "fish")
DAEMONS = ("containerd", "control", "agent", "netproxy", "dns")
HELP = ("-h", "--help", "help")
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def add_tools(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(cls=KubectlCommand, context_settings=PASSED_ON, add_help_option=False)(kubectl)
    for program in (crictl, ctr):
        app.command(context_settings=PASSED_ON, add_help_option=False)(program)
    app.command()(logs)
    app.command()(version)
    app.command()(completion)
    app.command("help")(show_help)
    app.command("support-bundle")(support_bundle)


def kubectl(context: typer.Context, prefix: options.Prefix = "/") -> None:
    """Run kubectl as the cluster's administrator.

    The arguments are kubectl's: `wherry kubectl --help` shows them.
    """
    from wherry import kubectl as program
    from wherry.layout import Layout

    program.run(context.args, Layout(Path(prefix)).admin_kubeconfig)


def crictl(context: typer.Context, prefix: options.Prefix = "/") -> None:
    """Run crictl on this machine's container runtime.

    The arguments are crictl's: `wherry crictl --help` shows them.
    """
    if _asks_for_help(context.args):
        _become("crictl", context.args)
    root()
    endpoint = installed(prefix).runtime
    _become("crictl", ["--runtime-endpoint", endpoint, "--image-endpoint", endpoint, *context.args])


def ctr(context: typer.Context, prefix: options.Prefix = "/") -> None:
    """Run ctr on this machine's containerd.

    The arguments are ctr's: `wherry ctr --help` shows them.
    """
    from wherry import containerd

    if _asks_for_help(context.args):
        _become("ctr", context.args)
    root()
    settings = installed(prefix)
    containerd.require_running(settings)
    program, *arguments = containerd.ctr(settings)
    _become(program, [*arguments, *context.args])


def logs(
    daemon: Annotated[
        str, typer.Argument(help="Daemon. Default: all.", show_default=False, autocompletion=options.values(*DAEMONS))
    ] = "",
    prefix: options.Prefix = "/",
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until interrupted.")] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", help="Number of lines to begin with.", min=0)] = 100,
) -> None:
    """Print the logs of this machine's daemons."""
    from wherry import daemon_logs

    settings = installed(prefix)
    program, *arguments = daemon_logs.command(settings, daemon, follow=follow, tail=tail)
    _become(program, arguments)


def version(prefix: options.Prefix = "/", format: options.Output = "table") -> None:
    """Show versions of the command, API server and runtime."""
    from wherry import versions

    output.check(format)
    try:
        found = asyncio.run(versions.collect(installed(prefix)))
    except WherryError as error:
        found = versions.without_cluster(str(error))
    if format in ("json", "yaml"):
        print(output.dumped(found, format), end="")
        return
    for name, text in found.items():
        print(f"{name}: {terminal.plain(text)}")


def support_bundle(
    path: Annotated[
        Path | None, typer.Argument(help="File to write. Default: one in /var/lib/wherry/support.", show_default=False)
    ] = None,
    prefix: options.Prefix = "/",
) -> None:
    """Collect what a bug report needs, without secrets.

    The archive contains versions, status, options, logs, the machine's network and lists of objects. Private keys, tokens,
    passwords, values of environment variables, Secrets and ConfigMaps are left out. Read it before you send it.
    """
    from wherry import support_bundle as bundle
    from wherry.command_options import options_of
    from wherry.up_command import up

    root()
    made = asyncio.run(bundle.create(installed(prefix), path, options_of(up)))
    print(made)


def _commands(context: typer.Context, incomplete: str) -> list[str]:
    """Return the commands that complete the words of `wherry help`."""
    found: Any = context.find_root().command
    for word in context.params.get("command") or ():
        found = getattr(found, "commands", {}).get(word)
    names = getattr(found, "commands", {})
    return [name for name in names if name.startswith(incomplete)]


def show_help(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Command. Default: all.", show_default=False, autocompletion=_commands),
    ] = None,
) -> None:
    """Show the help of a command."""
    root = context.find_root().command
    made = type(context)(root, info_name="wherry", **root.context_settings)
    for name in command or ():
        inner = getattr(made.command, "commands", {}).get(name)
        if inner is None:
            raise UsageError(f"there is no command {' '.join(command or ())}: `wherry help` lists them")
        made = type(context)(inner, parent=made, info_name=name)
    print(made.command.get_help(made))


def completion(
    context: typer.Context,
    shell: Annotated[
        str,
        typer.Argument(help="Shell: bash, zsh or fish.", show_default=False, autocompletion=options.values(*SHELLS)),
    ],
) -> None:
    """Print a shell's completion script.

    In bash: source <(wherry completion bash)
    """
    if shell not in SHELLS:
        raise UsageError(f"there is no completion for {shell}: use {', '.join(SHELLS[:-1])} or {SHELLS[-1]}")
    os.environ[COMPLETION] = f"source_{shell}"
    enable_completion()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        context.find_root().command(prog_name="wherry")
    print(printed.getvalue().strip("\n"))  # zsh reads the first line of a file alone


def enable_completion() -> None:
    """Have the command answer shells that ask for completions."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


def _asks_for_help(arguments: list[str]) -> bool:
    """Return whether arguments ask for the help of a program or of one of its commands, without root or a cluster."""
    return bool(arguments) and (arguments[0] in HELP or (len(arguments) == 2 and arguments[1] in HELP[:2]))


def _become(program: str, arguments: list[str]) -> None:
    """Replace this process by a program; raises WherryError where it is not installed."""
    try:
        os.execvp(program, [program, *arguments])  # noqa: S606 - there is no shell
    except FileNotFoundError as error:
        raise WherryError(f"{program} is not installed: {SOURCES[program]}") from error


SOURCES = {
    "crictl": "Debian 12 has no package of it, install a release of kubernetes-sigs/cri-tools; `wherry ctr containers list` "
    "shows the containers without it",
    "ctr": "it is part of Debian's package containerd",
    "journalctl": "it is part of Debian's package systemd",
    "tail": "it is part of Debian's package coreutils",
}
