"""The command `wherry dev`: a cluster with simulated nodes in the foreground, for anybody's laptop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wherry.errors import WherryError
from wherry.terminal import console

if TYPE_CHECKING:
    from wherry.testing.async_cluster import AsyncCluster

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
) -> None:
    """Run a cluster with simulated nodes in the foreground.

    Without root, until Ctrl-C. The API server, controllers and scheduler are real. Nothing is kept.
    """
    if kubeconfig is not None and os.path.lexists(kubeconfig):
        raise WherryError(f"{kubeconfig} exists: remove it, or name another file with --kubeconfig")
    for path in load or ():
        if not path.exists():
            raise WherryError(f"{path}: no such file or folder")
    try:
        asyncio.run(_serve(nodes, load or [], kubeconfig, port))
    except OSError as error:
        raise WherryError(f"the cluster cannot start: {error}") from error


async def _serve(nodes: int, load: list[Path], kubeconfig: Path | None, port: int) -> None:
    from wherry.testing.async_cluster import AsyncCluster
    from wherry.testing.errors import ClusterError

    stop = asyncio.Event()
    for number in _STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with AsyncCluster(nodes, port=port) as cluster:
            with _written(cluster, kubeconfig) as path:
                for source in load:
                    applied = await cluster.apply(source)
                    console.print(f"objects applied from {source}: {len(applied)}")
                console.print(f"{cluster.url} with {nodes} simulated nodes; Ctrl-C ends it")
                console.print(f"export KUBECONFIG={path}", soft_wrap=True)
                await stop.wait()
    except ClusterError as error:
        raise WherryError(str(error)) from error


@contextlib.contextmanager
def _written(cluster: AsyncCluster, path: Path | None) -> Iterator[Path]:
    """Write the kubeconfig to a file that is not there yet, and remove it afterwards."""
    if path is None:
        yield cluster.kubeconfig
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WherryError(f"{path}: {os.strerror(error.errno or 0)}") from error
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(cluster.engine.kubeconfig_text())
        yield path.resolve()
    finally:
        path.unlink(missing_ok=True)
