"""The command `wherry why`: what happened to an object, why it is not as it should be, and what to do."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from wherry import options, output
from wherry.errors import WherryError

FORMATS = ("text", "json", "yaml")


def why(
    words: Annotated[list[str], typer.Argument(metavar="KIND/NAME", help="Object, such as pod/web-1.")],
    prefix: options.Prefix = "/",
    format: options.TextOutput = "text",
    *,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace. Default: the context's.", show_default=False)
    ] = "",
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig. Default: $KUBECONFIG, ~/.kube/config, the administrator's.", show_default=False),
    ] = None,
    context: Annotated[
        str, typer.Option(help="Context of the kubeconfig. Default: the current one.", show_default=False)
    ] = "",
    since: Annotated[str, typer.Option(help="Show what happened in this time, such as 10m.", show_default=False)] = "",
) -> None:
    """Explain the state of an object.

    Shows what happened to it, why it is not as it should be, and the next command. Works with every Kubernetes cluster.
    """
    from wherry.why.subject import split

    if format not in FORMATS:
        raise WherryError(f"-o {format}: use text, json or yaml")
    kind, name = split(words)
    path = kubeconfig or _kubeconfig(prefix)
    asyncio.run(_answer(path, context, kind, name, namespace, _duration(since), format))


def _duration(text: str) -> timedelta | None:
    from kube import duration

    if not text:
        return None
    try:
        return timedelta(seconds=duration.parse(text))
    except ValueError as error:
        raise WherryError(f"--since {text}: write a duration such as 90s, 10m or 2h") from error


def _kubeconfig(prefix: str) -> Path:
    from wherry.layout import Layout

    given = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if given:
        return Path(given)
    own, admin = Path("~/.kube/config").expanduser(), Layout(Path(prefix)).admin_kubeconfig
    if own.exists() and not (prefix != "/" and admin.exists()):
        return own
    if not os.access(admin, os.R_OK):
        raise WherryError("there is no kubeconfig: name one with --kubeconfig, or in KUBECONFIG")
    return admin


async def _answer(
    path: Path, context: str, kind: str, name: str, namespace: str, since: timedelta | None, format: str
) -> None:
    from kube.clock import SYSTEM
    from wherry import cluster
    from wherry.why import report, story

    async with cluster.as_user(path, context) as (client, default):
        found = await story.tell(client, kind, name, namespace or default, SYSTEM.now(), since)
    if format == "text":
        print("\n".join(report.lines(found)))
    else:
        print(output.dumped(report.data(found), format), end="")
