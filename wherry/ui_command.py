"""The command `wherry ui`: the page that shows the cluster, on a port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from wherry import options
from wherry.errors import WherryError
from wherry.terminal import console

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ui(
    prefix: options.Prefix = "/",
    *,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Kubeconfig. Default: $KUBECONFIG, ~/.kube/config, the administrator's.", show_default=False),
    ] = None,
    context: Annotated[
        str, typer.Option(help="Context of the kubeconfig. Default: the current one.", show_default=False)
    ] = "",
    port: Annotated[int, typer.Option(help="Port; 0: a free one.", min=0, max=65535)] = 0,
    localhost: Annotated[
        bool,
        typer.Option(
            "--localhost",
            help="Use a random name under localhost instead of a random loopback address: for ports that SSH forwards.",
        ),
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the link, and open no browser.")] = False,
) -> None:
    """Show the cluster in a browser.

    Serves a page on a loopback address of its own until Ctrl-C, and prints a link that works once. The page reads with the
    kubeconfig's rights.
    """
    from wherry import caller_kubeconfig

    paths = [kubeconfig] if kubeconfig else caller_kubeconfig.paths(prefix)
    asyncio.run(_run(paths, context, port, localhost=localhost, browser=not no_browser))


async def _run(paths: list[Path], context: str, port: int, *, localhost: bool, browser: bool) -> None:
    from wherry import cluster
    from wherry.ui import app, origin, peers, server
    from wherry.ui.browser import link_file, show
    from wherry.ui.session import Session

    stop = asyncio.Event()
    for number in _STOPS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with cluster.as_user(paths, context) as (client, namespace):
        try:
            place = origin.own(port, localhost=localhost)
        except OSError as error:
            why = "another process has it; choose another one" if error.errno == errno.EADDRINUSE else None
            raise WherryError(f"--port {port}: {why or os.strerror(error.errno or 0)}") from error
        session = Session()
        shown = app.Cluster(client, getattr(client.transport, "server", ""), namespace)
        url = f"{place.url}/#{session.link}"
        with link_file(url) if browser else contextlib.nullcontext() as file:
            console.print("open this link, which works once:")
            console.print(url, soft_wrap=True)
            console.print("Ctrl-C ends it")
            if file is not None:
                show(file)
            with peers.connections_of(peers.own_users()) as admits:
                await server.serve(app.build(shown, session, place, stop), place.sockets, stop, admits)
