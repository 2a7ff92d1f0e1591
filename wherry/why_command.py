"""The command `wherry why`: causes of an object's state, and the next command."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from wherry import options, output
from wherry.errors import UsageError

DENIED = "denied"
FORMATS = ("text", "json", "yaml")


def why(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND/NAME",
            show_default=False,
            help="Object, such as pod/web-1; or: denied USER VERB RESOURCE[/NAME].",
        ),
    ] = None,
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
    group: Annotated[
        list[str] | None,
        typer.Option(help="With denied: a group of the user. Can be repeated.", show_default=False),
    ] = None,
    since: Annotated[str, typer.Option(help="Show what happened in this time, such as 10m.", show_default=False)] = "",
) -> None:
    """Explain the state of an object, or a denied request.

    Shows what happened to it, why it is not as it should be, and the next command. Works with every Kubernetes cluster.
    """
    from wherry import chosen_kubeconfig
    from wherry.why.subject import split

    output.check(format, FORMATS)
    length, words = _duration(since), words or []
    if words[:1] != [DENIED]:
        split(words)
        if group:
            raise UsageError("--group belongs to `wherry why denied`")
    path = kubeconfig or chosen_kubeconfig.path(prefix)
    asyncio.run(_answer(path, context, words, namespace, group or [], length, format))


def _duration(text: str) -> timedelta | None:
    from kube import duration

    if not text:
        return None
    try:
        seconds = duration.parse(text)
        if seconds <= 0:
            raise ValueError
        return timedelta(seconds=seconds)
    except ValueError as error:
        raise UsageError(f"--since {text}: write a duration such as 90s, 10m or 2h") from error


async def _answer(
    path: Path,
    context: str,
    words: list[str],
    namespace: str,
    groups: list[str],
    since: timedelta | None,
    format: str,
) -> None:
    from kube.clock import SYSTEM
    from wherry import cluster
    from wherry.why import denied, report, story
    from wherry.why.subject import split

    now = SYSTEM.now()
    async with cluster.as_user(path, context) as (client, default):
        if words[0] == DENIED:
            wanted = await denied.request(client, words[1:], namespace or default, groups)
            found = await denied.explained(client, wanted, now)
        else:
            found = await story.tell(client, *split(words), namespace or default, now, since)
    if format == "text":
        print("\n".join(report.lines(found)))
    else:
        print(output.dumped(report.data(found), format), end="")
