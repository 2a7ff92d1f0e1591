"""The command `wherry dev`: a cluster with simulated nodes in the foreground, for anybody's laptop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from wherry.dev_kubeconfig import written
from wherry.dev_replay import replay as replay_history
from wherry.errors import UsageError, WherryError
from wherry.terminal import console

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def dev(
    nodes: Annotated[int, typer.Option(help="Number of simulated nodes.", min=0, max=5000)] = 3,
    load: Annotated[
        list[Path] | None,
        typer.Option(help="File or folder of manifests to apply. Can be repeated.", show_default=False),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="File to write the kubeconfig to. Default: a temporary file.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of the API server on 127.0.0.1; 0: a free one.", min=0, max=65535)
    ] = 0,
    replay: Annotated[
        Path | None,
        typer.Option(
            help="File with the history of a failed test (pytest --kubernetes-history): show its objects, step by step.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a cluster with simulated nodes in the foreground.

    Without root, until Ctrl-C. The API server, controllers and scheduler are real. Nothing is kept.
    """
    if replay is not None and load:
        raise UsageError("--replay shows the objects of a history, without others: leave --load out")
    if kubeconfig is not None and os.path.lexists(kubeconfig):
        raise WherryError(f"{kubeconfig} exists: remove it, or name another file with --kubeconfig")
    for path in load or ():
        if not path.exists():
            raise WherryError(f"{path}: no such file or folder")
    try:
        asyncio.run(_run(nodes, load or [], kubeconfig, port, replay))
    except OSError as error:
        if error.errno == errno.EADDRINUSE and port:
            raise WherryError(f"--port {port}: another process has it; choose another one") from error
        raise WherryError(f"the cluster cannot start: {error}") from error


async def _run(nodes: int, load: list[Path], kubeconfig: Path | None, port: int, history: Path | None) -> None:
    from wherry.testing.errors import ClusterError

    stop = asyncio.Event()
    for number in _STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        if history is not None:
            await replay_history(history, kubeconfig, port, stop)
        else:
            await _serve(nodes, load, kubeconfig, port, stop)
    except ClusterError as error:
        raise WherryError(str(error)) from error


async def _serve(nodes: int, load: list[Path], kubeconfig: Path | None, port: int, stop: asyncio.Event) -> None:
    from wherry.testing.async_cluster import AsyncCluster

    async with AsyncCluster(nodes, port=port) as cluster:
        own = contextlib.nullcontext(cluster.kubeconfig)
        with own if kubeconfig is None else written(cluster.engine.kubeconfig_text(), kubeconfig) as path:
            for source in load:
                applied = await cluster.apply(source)
                console.print(f"objects applied from {source}: {len(applied)}")
            console.print(f"{cluster.url} with {nodes} simulated nodes; Ctrl-C ends it")
            console.print(f"export KUBECONFIG={path}", soft_wrap=True)
            await stop.wait()
