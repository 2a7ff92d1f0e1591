"""Runs one role in the foreground, for a systemd unit or the supervisor.

    python -m wherry.roles server|agent|proxy|dns [--prefix /]

Only the role's own packages are imported, to save memory. Readiness and the watchdog
are reported to systemd over $NOTIFY_SOCKET, if it is set. Both come from the role's event loop: before a role is ready it
extends the start timeout, so it may wait for an API server for ever, but a hanging event loop is killed at any time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from kube import grpc_fork_handlers, interned_strings, log_lines
from kube.json_logs import JsonFormatter
from kube.log_lines import LineFormatter
from wherry.errors import WherryError
from wherry.settings import Settings, load


def notify(message: str) -> None:
    """Send systemd a state such as READY=1; without systemd this has no effect."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.sendall(message.encode())


_started = asyncio.Event()


def ready() -> None:
    _started.set()
    notify("READY=1")
    # What start-up made lives as long as the process: keep the collector from walking it again and again.
    gc.collect()
    gc.freeze()


async def _watchdog() -> None:
    """Feed systemd's watchdog from the loop that does the work, so that a stuck loop is noticed."""
    limit = int(os.environ.get("WATCHDOG_USEC", "0"))
    while limit:
        notify("WATCHDOG=1" if _started.is_set() else f"EXTEND_TIMEOUT_USEC={limit}")
        await asyncio.sleep(limit / 1e6 / 2)


def _apply_form(form: str) -> None:
    """Log as JSON if the role's own configuration file says so; --logging-format applies without it."""
    if form == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())


async def _explained(work: Coroutine[Any, Any, None], kind: type[Exception]) -> None:
    """Run a role; an error of a kind that its configuration causes becomes one sentence in the log."""
    try:
        await work
    except kind as error:
        raise WherryError(str(error)) from error


def server(settings: Settings) -> Coroutine[Any, Any, None]:
    from control.main import run
    from kube.tracing.configuration import TracingError
    from wherry.control_settings import control_config
    from wherry.snapshot_schedule import run_with_snapshots

    return run_with_snapshots(_explained(run(control_config(settings), ready=ready), TracingError), settings)


def agent(settings: Settings) -> Coroutine[Any, Any, None]:
    from agent.kubelet_configuration import ConfigError
    from agent.main import run
    from wherry.agent_settings import agent_config

    try:
        config = agent_config(settings)
    except ConfigError as error:
        raise WherryError(str(error)) from error
    _apply_form(config.file.logging.format)
    return _explained(run(config, ready=ready), ConfigError)


def proxy(settings: Settings) -> Coroutine[Any, Any, None]:
    from netproxy.configuration_file import load as load_proxy
    from netproxy.main import run
    from wherry.proxy_settings import proxy_config

    config = proxy_config(settings, load_proxy(settings.layout.proxy_configuration))
    _apply_form(config.log_format)
    return run(config, ready=ready)


def dns(settings: Settings) -> Coroutine[Any, Any, None]:
    from netproxy.configuration_file import load as load_proxy
    from netproxy.without_services import run
    from wherry.proxy_settings import dns_config

    return run(dns_config(settings, load_proxy(settings.layout.proxy_configuration)), ready=ready)


ROLES: dict[str, Callable[[Settings], Coroutine[Any, Any, None]]] = {
    "server": server,
    "agent": agent,
    "proxy": proxy,
    "dns": dns,
}


async def _run(role: str, settings: Settings) -> None:
    """Run the role until SIGTERM or SIGINT, which end it in order."""
    work = asyncio.ensure_future(ROLES[role](settings))
    watchdog = asyncio.create_task(_watchdog(), name="watchdog")
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        logging.getLogger("wherry").info("stopped")
    finally:
        watchdog.cancel()


class _JournalFormatter(LineFormatter):
    """Log format for the journal: no time, and the priority as a number before the line (sd-daemon(3))."""

    _PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))

    def format(self, record: logging.LogRecord) -> str:
        priority = next((number for level, number in self._PRIORITIES if record.levelno >= level), 7)
        text = f"{record.name}: {super().format(record)}"
        return "\n".join(f"<{priority}>{line}" for line in text.splitlines())


def log_to_stderr(*, verbose: bool = False, form: str = "text") -> None:
    """Write log lines to stderr, as JSON or as text; text in the journal's form where stderr leads there."""
    handler = log_lines.handler()
    if form == "json":
        handler.setFormatter(JsonFormatter())
    elif "JOURNAL_STREAM" in os.environ:
        handler.setFormatter(_JournalFormatter())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])


def main() -> None:
    parser = argparse.ArgumentParser(prog="wherry", description="Run one role of this machine's node.")
    parser.add_argument("role", choices=sorted(ROLES))
    parser.add_argument("--prefix", default="/")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    grpc_fork_handlers.disable()
    try:
        settings = load(options.prefix)
        log_to_stderr(verbose=options.verbose, form=settings.logging_format if settings else "text")
        if settings is None:
            raise WherryError("this machine has not been set up: run `wherry up` first")
        interned_strings.warn(logging.getLogger("wherry"))
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(options.role, settings))
    except (WherryError, OSError) as error:
        logging.getLogger("wherry").error("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
