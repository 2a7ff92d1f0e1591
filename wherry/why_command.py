"""The command `wherry why`: causes of an object's state, and the next command."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wherry import caller_kubeconfig, name_completion, options, output, terminal
from wherry.errors import UsageError

if TYPE_CHECKING:
    from wherry.why.model import Story

DENIED = "denied"
INTERRUPTED = 130
"""Exit status, as a shell gives it to a program that SIGINT has ended."""
FORMATS = ("text", "json", "yaml")


def why(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND/NAME",
            show_default=False,
            help="Object, such as pod/web-1; or: denied USER VERB RESOURCE[/NAME].",
            autocompletion=name_completion.objects,
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
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show changes until nothing is wrong with it.", show_default=False)
    ] = False,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POD",
            help="With a Service: the pod that connects, [NAMESPACE:]pod/NAME.",
            show_default=False,
        ),
    ] = "",
    since: Annotated[str, typer.Option(help="Show what happened in this time, such as 10m.", show_default=False)] = "",
) -> None:
    """Explain the state of an object, or a denied request.

    Shows what happened to it, why it is not as it should be, and the next command. Works with every Kubernetes cluster.
    """
    from wherry.why.subject import split

    output.check(format, FORMATS)
    length, words = _duration(since), words or []
    if words[:1] != [DENIED]:
        split(words)
        if group:
            raise UsageError("--group belongs to `wherry why denied`")
    elif follow or source:
        option = "--follow" if follow else "--from"
        raise UsageError(f"{option} belongs to an object, not to `wherry why denied`")
    paths = [kubeconfig] if kubeconfig else caller_kubeconfig.paths(prefix)
    try:
        asyncio.run(_answer(paths, context, words, namespace, group or [], length, format, source, follow=follow))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


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
    paths: list[Path],
    context: str,
    words: list[str],
    namespace: str,
    groups: list[str],
    since: timedelta | None,
    format: str,
    source: str,
    *,
    follow: bool,
) -> None:
    from kube.clock import SYSTEM
    from wherry import cluster
    from wherry.why import denied, following, story
    from wherry.why.subject import split

    now = SYSTEM.now()
    async with cluster.as_user(paths, context) as (client, default):
        if words[0] == DENIED:
            wanted = await denied.request(client, words[1:], namespace or default, groups)
            found = await denied.explained(client, wanted, now)
        elif follow:

            async def read() -> Story:
                return await story.compose(client, *split(words), namespace or default, SYSTEM.now(), since, source)

            return await following.follow(read, _Shown(format).show, terminal.errors.print)
        else:
            found = await story.compose(client, *split(words), namespace or default, now, since, source)
    _Shown(format).show(found, ended=True)


class _Shown:
    """Prints stories: the first one whole, of the next ones what is new."""

    def __init__(self, format: str) -> None:
        self._format, self._first = format, True

    def show(self, found: Story, ended: bool) -> None:  # noqa: FBT001 - as following.py calls it
        from wherry.why import report

        first, self._first = self._first, False
        if self._format != "text":
            print("" if first or self._format == "json" else "---\n", end="")
            print(output.dumped(report.data(found), self._format), end="", flush=True)
        else:
            lines = report.lines(found) if first else report.later_lines(found, ended=ended)
            width = terminal.console.width if sys.stdout.isatty() else 0
            print("\n".join(report.broken(line, width) for line in lines), flush=True)
