"""Completion of names: images, snapshots, tokens, addons and objects that exist now.

A shell waits for it at a key press, and shows what is printed as if it were typed. So it has a limit of time, and prints
nothing but names: none without root, without a cluster or if a daemon does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import typer

from wherry import caller_kubeconfig
from wherry.kubectl_completion import MOST, PLAIN, complete
from wherry.settings import Settings, load

SECONDS = 3.0
"""Time for names. A second later the process ends, whatever it waits for."""
T = TypeVar("T")
Completion = Callable[[typer.Context, str], list[str]]


def offering(find: Callable[[Settings], Awaitable[Iterable[str]]]) -> Completion:
    """Return the completion of an argument or option by names that are found on an installation."""

    def offered(context: typer.Context, incomplete: str) -> list[str]:
        typed = {word for value in context.params.values() if isinstance(value, list | tuple) for word in value}
        prefix = context.params.get("prefix") or "/"
        return _plain(_found(lambda: _on(prefix, find)), incomplete, typed)

    return offered


def _on(prefix: str, find: Callable[[Settings], Awaitable[Iterable[str]]]) -> Iterable[str]:
    settings = load(prefix)
    return asyncio.run(_within(find(settings))) if settings is not None else ()


async def _within(work: Awaitable[Iterable[str]]) -> Iterable[str]:
    async with asyncio.timeout(SECONDS):
        return await work


def _found(find: Callable[[], Iterable[T]]) -> Iterable[T]:
    """Return what is found in time, nothing if it fails, without a word on standard error."""
    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(1))
    signal.setitimer(signal.ITIMER_REAL, SECONDS + 1)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return find()
    except Exception:  # of files, daemons and servers in any state: there are no names to offer
        return ()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _plain(names: Iterable[str], incomplete: str, typed: set[str]) -> list[str]:
    """Return names that begin as the incomplete one; of plain characters, because zsh evaluates what it gets."""
    found = {name for name in names if name.startswith(incomplete) and PLAIN.fullmatch(name)}
    return sorted(found - typed)[:MOST]


async def _images(settings: Settings) -> list[str]:
    from wherry import images

    return [image.name for image in await images.listed(settings)]


async def _snapshots(settings: Settings) -> list[str]:
    """Return the names in the snapshot folder, and those in S3 if the service answers."""
    from wherry.s3 import S3
    from wherry.snapshot_names import SUFFIX

    options = settings.snapshot_options
    found = [path.name for path in options.folder.glob(f"[!.]*{SUFFIX}")]
    if options.bucket:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(SECONDS / 2), S3.open(options) as s3:
                found += [each.name for each in await s3.listed() if each.name.endswith(SUFFIX)]
    return found


async def _tokens(settings: Settings) -> list[str]:
    from wherry import cluster, tokens

    async with cluster.admin(settings) as client:
        return [found.token.id for found in await tokens.known(client)]


images, snapshots, tokens = offering(_images), offering(_snapshots), offering(_tokens)


def addons(context: typer.Context, incomplete: str) -> list[str]:
    """Return the parts of the control plane that may be disabled, then the files of the folder of addons."""
    from control.addon_names import BUILT_IN
    from wherry.layout import Layout

    folder = Layout(Path(context.params.get("prefix") or "/")).addons
    files = _plain(_found(lambda: [path.stem for path in folder.iterdir()]), incomplete, set(BUILT_IN))
    return [name for name in (*BUILT_IN, *files) if name.startswith(incomplete)]


def objects(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the kinds and names that kubectl completes for `kubectl get`, with the kubeconfig that `wherry why` takes."""
    given: dict[str, Any] = context.params
    prefix, own = given.get("prefix") or "/", given.get("kubeconfig")
    paths = [str(own)] if own else list(map(str, _found(lambda: caller_kubeconfig.paths(prefix))))
    if not paths:
        return []
    options = [f"--{name}={given[name]}" for name in ("context", "namespace") if given.get(name)]
    variables = {**os.environ, "KUBECONFIG": os.pathsep.join(paths)}
    arguments = ["get", *options, *(given.get("words") or ()), incomplete]
    return [(item.value, item.help) for item in complete(arguments, Path(os.devnull), variables)]
