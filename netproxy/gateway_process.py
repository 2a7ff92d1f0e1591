"""The process of a node's gateway: it runs while there is a Gateway or an Ingress to serve, and is restarted with back-off.

The controller has an EndpointSlice for each gateway, so the proxy's watch of slices reports whether there is one. The process
ends with the network role, whose end closes its standard input: the channel for messages about sockets (gateway_sockets.py).
A process that sends no heartbeat hangs and is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kube.api import discovery_v1
from kube.clock import Clock
from kube.gateway import names
from kube.informer import Change, Informer
from netproxy.api import Api
from netproxy.config import ProxyConfig
from netproxy.gateway_sockets import GatewaySockets
from netproxy.tasks import Task

log = logging.getLogger(__name__)
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds before a process that has ended is started again: doubled each time, until one runs for longer."""
SILENCE_SECONDS = 60.0
"""Time without a heartbeat after which a process is killed."""
LINGER_SECONDS = 5.0
"""Time without a gateway after which the process is ended."""
END_SECONDS = 5.0
"""Time that a process has to end."""
_ROOT = str(Path(__file__).resolve().parents[1])


def command(config: ProxyConfig) -> list[str]:
    """Return the command line of a gateway."""
    return [
        sys.executable,
        "-P",
        "-m",
        "netproxy.gateway",
        f"--kubeconfig={config.kubeconfig}",
        f"--node-name={config.node_name}",
        f"--logging-format={config.log_format}",
    ]


def tasks(config: ProxyConfig, api: Api, sockets: GatewaySockets, clock: Clock) -> Iterator[Task]:
    """Yield the task that runs a node's gateway, if this process is to do that and has a kubeconfig for it."""
    if config.gateway and config.kubeconfig:
        yield Task("gateway process", GatewayProcess(api.slices, command(config), sockets, clock).run)


class GatewayProcess:
    """Runs a command while an EndpointSlice of a gateway exists."""

    def __init__(
        self,
        slices: Informer[discovery_v1.EndpointSlice],
        argv: Sequence[str],
        sockets: GatewaySockets,
        clock: Clock,
    ) -> None:
        self._argv, self._sockets, self._clock = argv, sockets, clock
        self._found: set[str] = set()
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._unwanted.set()
        self.process: asyncio.subprocess.Process | None = None
        slices.subscribe(self._slice_changed)

    def _slice_changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        metadata = change.new.metadata
        if metadata.namespace != names.NAMESPACE or names.UID not in metadata.labels:
            return
        if change.type == "DELETED":
            self._found.discard(change.key)
        else:
            self._found.add(change.key)
        reached, left = (self._wanted, self._unwanted) if self._found else (self._unwanted, self._wanted)
        reached.set()
        left.clear()

    async def run(self) -> None:
        """Start and restart the process until cancelled, and then end it."""
        delay = FIRST_RETRY
        while True:
            await self._wanted.wait()
            began = self._clock.monotonic()
            try:
                await self._run_once()
            except OSError as error:
                log.error("the gateway cannot be started: %s", error)
            if not self._wanted.is_set():
                self._sockets.clear()
                delay = FIRST_RETRY
                continue
            if self._clock.monotonic() - began > LAST_RETRY:
                delay = FIRST_RETRY
            await self._clock.sleep(delay)
            delay = min(2 * delay, LAST_RETRY)

    async def _run_once(self) -> None:
        """Run the process until it ends, hangs or is not needed."""
        process = self.process = await self._start()
        log.info("gateway started, process %d", process.pid)
        tasks = [
            asyncio.ensure_future(each)
            for each in (process.wait(), self._until_unneeded(), self._until_silent(process))
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                log.error("the gateway has ended with status %s", process.returncode)
            elif tasks[2].done():
                log.error("the gateway does not respond: process %d is killed", process.pid)
                process.kill()
            else:
                log.info("no gateway is needed: process %d is ended", process.pid)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _end(process)
            self._sockets.detach()
            self.process = None

    async def _start(self) -> asyncio.subprocess.Process:
        inherited = self._sockets.attach()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=inherited.end.fileno(),
                stdout=asyncio.subprocess.PIPE,
                pass_fds=inherited.descriptors,
                env=os.environ | {"PYTHONPATH": _ROOT},
            )
        finally:
            inherited.close()
        self._sockets.started(process.pid)
        return process

    async def _until_unneeded(self) -> None:
        while not self._unwanted.is_set():
            await self._unwanted.wait()
            await self._clock.sleep(LINGER_SECONDS)

    async def _until_silent(self, process: asyncio.subprocess.Process) -> None:
        """Return when there was no heartbeat for long."""
        assert process.stdout is not None
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(SILENCE_SECONDS):
                    if not await process.stdout.read(4096):
                        await asyncio.sleep(SILENCE_SECONDS)  # it has closed its output: it ends


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process: in order, or after a while at once.

    It runs in tasks that are being cancelled, in which asyncio.timeout of Python 3.11.2 raises CancelledError.
    """
    ended = asyncio.ensure_future(process.wait())
    try:
        for end in (process.terminate, process.kill):
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    end()
            await asyncio.wait((ended,), timeout=END_SECONDS)
            if ended.done():
                return
    finally:
        ended.cancel()
