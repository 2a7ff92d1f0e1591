"""`python -m control kube-apiserver|kube-controller-manager|kube-scheduler FLAGS`: upstream's command lines, daemon by daemon.

For machines whose units or manifests were written for upstream's. Flags that mean the same are taken; one that is not known,
or that requests what is not available here, ends the daemon with one sentence. `--data-dir` is Wherry's own: the folder of
kube-apiserver's SQLite database, where no `--etcd-servers` are named.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control import features
from control.components import standalone
from control.components.secure_port import MANAGER, PORTS, SCHEDULER
from control.config import ControlConfig
from control.flags import api_server, controller_manager, scheduler
from control.flags.command import FlagError, read
from control.flags.kinds import NUMBER, PATH, Kind, one_of
from kube import grpc_fork_handlers, interned_strings, log_lines
from kube.build import GIT_VERSION
from kube.json_logs import DEBUG_VERBOSITY, JsonFormatter

DATA = Path("/var/lib/wherry/control")
LOGS: dict[str, tuple[str, Kind]] = {
    "logging-format": ("logging_format", one_of("text", "json")),
    "v": ("verbosity", NUMBER),
}
OWN: dict[str, tuple[str, Kind]] = {"data-dir": ("data_dir", PATH), **LOGS}
REQUIRED = {
    "cert_file": "tls-cert-file",
    "key_file": "tls-private-key-file",
    "client_ca_file": "client-ca-file",
    "service_account_key_file": "service-account-signing-key-file",
}
DAEMONS = ("kube-apiserver", MANAGER, SCHEDULER)


def api_server_config(given: dict[str, Any]) -> ControlConfig:
    """Make kube-apiserver's configuration of the fields that flags gave; raises FlagError."""
    for field, flag in REQUIRED.items():
        if given.get(field) is None:
            raise FlagError(f"--{flag} is required")
    given.setdefault("data_dir", DATA)
    if given.get("etcd_servers"):
        given["store"] = "etcd"
    if "audit_policy_file" in given and "audit_log_file" not in given and "audit_webhook_file" not in given:
        raise FlagError("--audit-policy-file needs --audit-log-path or --audit-webhook-config-file")
    config = ControlConfig(**given, enable_controllers=False, enable_scheduler=False)
    try:
        features.check(config.feature_gates)
    except ValueError as error:
        raise FlagError(f"--feature-gates: {error}") from error
    return config


@dataclass(frozen=True, slots=True)
class Logs:
    """Verbosity and form of the log."""

    verbosity: int = 0
    form: str = "text"


def work(daemon: str, arguments: Sequence[str]) -> tuple[Coroutine[Any, Any, None], Logs]:
    """Return what a daemon does with a command line, and how it logs; raises FlagError."""
    stop = asyncio.Event()
    if daemon == "kube-apiserver":
        from control.main import run

        given = read(arguments, {**api_server.FLAGS, **OWN}, api_server.FIXED)
        logs = _logs(given)
        return run(api_server_config(given), stop=stop), logs
    if daemon not in DAEMONS:
        raise FlagError(f"there is no daemon {daemon!r} here; there are {', '.join(DAEMONS)}")
    table = controller_manager if daemon == MANAGER else scheduler
    given = read(arguments, {**table.FLAGS, **LOGS}, table.FIXED)
    logs = _logs(given)
    return _run_until_signal(standalone.run(standalone.options(daemon, PORTS[daemon], given), stop), stop), logs


def _logs(given: dict[str, Any]) -> Logs:
    return Logs(given.pop("verbosity", 0), given.pop("logging_format", "text"))


async def _run_until_signal(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await work


def cli(argv: Sequence[str]) -> int:
    """Run the command; 0 after an orderly end, 1 for what cannot be used."""
    grpc_fork_handlers.disable()
    daemon, *arguments = argv or [""]
    if daemon == "--version" or "--version" in arguments:
        print(f"Kubernetes {GIT_VERSION}")
        return 0
    try:
        coroutine, logs = work(daemon, arguments)
    except FlagError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    handler = log_lines.handler()
    if logs.form == "json":
        handler.setFormatter(JsonFormatter())
    level = logging.DEBUG if logs.verbosity >= DEBUG_VERBOSITY else logging.INFO
    logging.basicConfig(level=level, handlers=[handler])
    interned_strings.warn(logging.getLogger("control"))
    import uvloop

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(coroutine)
    except Exception as error:  # whatever a file can provoke: one sentence, and its cause in the debug log
        logging.getLogger("control").debug("ended", exc_info=True)
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(cli(sys.argv[1:]))
