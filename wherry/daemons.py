"""Starts and stops the roles on this machine: with systemd if it is process 1, else with the supervisor.

Both run the same command lines: containerd and one process a role.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from kube import process_files
from kube.process import run
from wherry import file_modes, supervisor, units
from wherry.errors import WherryError
from wherry.settings import Settings
from wherry.units import uses_systemd

STOP_SECONDS = 90.0
POLL_SECONDS = 0.05
END_POLLS = 60
PYTHON = (sys.executable, "-P", "-m")
"""Without -P, Python would import modules from the current folder first, and run them as root."""


def roles(settings: Settings) -> dict[str, str]:
    """Return the role of each daemon, in the order of their start."""
    found = {} if settings.is_worker else {"control": "server"}
    found["agent"] = "agent"
    if settings.own_proxy:
        found["netproxy"] = "proxy"
    if settings.runs_dns:
        found["dns"] = "dns"
    return found


def command_lines(settings: Settings) -> dict[str, list[str]]:
    """Return the command line of each daemon, in the order of their start."""
    found: dict[str, list[str]] = {}
    if settings.own_containerd:
        binary = shutil.which("containerd")
        if not binary:
            raise WherryError("containerd is not installed: apt-get install containerd runc")
        found["containerd"] = [binary, "--config", str(settings.layout.containerd_configuration)]
    for daemon, role in roles(settings).items():
        through = ["wherry.allocator"] if role == "server" else []
        found[daemon] = [*PYTHON, *through, "wherry.roles", role, "--prefix", settings.prefix]
    return found


async def start(settings: Settings) -> None:
    """Start everything without waiting until it is ready."""
    if uses_systemd(settings):
        lines = command_lines(settings)
        if not await _kubeconfig_users(settings):
            restart_pending_file(settings).unlink(missing_ok=True)
        if not (await running(settings)).get("containerd"):
            containerd_pending_file(settings).unlink(missing_ok=True)
        await units.start(settings, list(lines), containerd=lines.get("containerd", [""])[0])
        return
    file_modes.make_folders(settings)
    async with _one_command(settings):
        if supervisor_pid(settings):
            return
        lock_descriptor = await _supervisor_lock(settings)
        if lock_descriptor is None:
            return  # one runs whose process ID was lost
        try:
            await asyncio.to_thread(
                supervisor.end, supervisor.left_behind(settings.layout.run, command_lines(settings))
            )
            restart_pending_file(settings).unlink(missing_ok=True)
            containerd_pending_file(settings).unlink(missing_ok=True)
            _start_supervisor(settings, lock_descriptor)
        finally:
            os.close(lock_descriptor)


@contextlib.asynccontextmanager
async def _one_command(settings: Settings) -> AsyncIterator[None]:
    """Wait until no other command starts or stops the daemons, and keep others waiting for as long as the block runs."""
    while True:
        try:
            lock_descriptor = supervisor.lock(settings.layout.run / "start.lock")
            break
        except BlockingIOError:
            await asyncio.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        os.close(lock_descriptor)


async def _supervisor_lock(settings: Settings) -> int | None:
    """Return the locked descriptor of the supervisor's lock; None if a supervisor runs, and does not end either."""
    for _ in range(END_POLLS):
        with contextlib.suppress(BlockingIOError):
            return supervisor.lock(_lock_file(settings))
        await asyncio.sleep(POLL_SECONDS)  # one that ends loses its command line before its lock
    return None


def _lock_file(settings: Settings) -> Path:
    return settings.layout.run / "supervisor.lock"


def _start_supervisor(settings: Settings, lock_descriptor: int) -> None:
    """Start a supervisor that inherits the locked descriptor of its lock."""
    layout = settings.layout
    plan = layout.run / "daemons.json"
    supervisor.write_plan(plan, layout.run, layout.logs, command_lines(settings))
    log_mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with os.fdopen(os.open(layout.logs / "supervisor.log", log_mode, 0o640), "ab") as log:
        pid = os.posix_spawn(
            sys.executable,
            [*PYTHON, "wherry.supervisor", str(plan), str(supervisor.INHERITED)],
            os.environ,
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                (os.POSIX_SPAWN_DUP2, lock_descriptor, supervisor.INHERITED),
            ],
        )
    # It writes this down itself, but only once it runs: who is interrupted before must find it too.
    supervisor.note_pid(lock_descriptor, pid)


async def stop(settings: Settings) -> bool:
    """Stop all daemons and wait for their end; return False if none ran. Containers keep running."""
    if uses_systemd(settings):
        ran = await units.stop(command_lines(settings))
    elif settings.layout.run.is_dir():
        async with _one_command(settings):
            ran = await _stop(settings)
    else:
        ran = False
    restart_pending_file(settings).unlink(missing_ok=True)
    containerd_pending_file(settings).unlink(missing_ok=True)
    return ran


async def _stop(settings: Settings) -> bool:
    pid = supervisor_pid(settings)
    if pid:
        os.kill(pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while _runs(pid, "wherry.supervisor"):
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            raise WherryError(f"the supervisor (process {pid}) does not end; see {settings.layout.logs}") from error
    lock_descriptor = await _supervisor_lock(settings)
    if lock_descriptor is None:
        path = _lock_file(settings)
        raise WherryError(f"the supervisor's process ID was lost: end the process that `fuser {path}` shows")
    try:
        # Those of a supervisor that was killed run on.
        left = supervisor.left_behind(settings.layout.run, command_lines(settings))
        await asyncio.to_thread(supervisor.end, left)
    finally:
        os.close(lock_descriptor)
    return bool(pid or left)


async def restart_stale(settings: Settings) -> list[str]:
    """Restart the daemons that run with a replaced kubeconfig; return their names.

    A command that is interrupted leaves none of them stopped, and the next one completes the restarts.
    """
    pending = restart_pending_file(settings)
    if not pending.exists():
        return []
    found = await _kubeconfig_users(settings)
    if found and uses_systemd(settings):
        await units.restart(found)
    elif found and not supervisor_pid(settings):
        await stop(settings)
        await start(settings)
    else:
        for pid in found.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)  # the supervisor starts it again
    pending.unlink(missing_ok=True)
    return list(found)


async def restart_containerd(settings: Settings) -> None:
    """Restart a containerd that runs with a replaced configuration, and wait until another process of it runs."""
    pending = containerd_pending_file(settings)
    old = (await running(settings)).get("containerd", 0) if pending.exists() else 0
    if old:
        if uses_systemd(settings):
            await units.restart(["containerd"])
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(old, signal.SIGTERM)  # the supervisor starts it again
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while (await running(settings)).get("containerd", 0) in (0, old):
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError as error:
            raise WherryError(f"containerd does not restart; see {where_logged(settings, 'containerd')}") from error
    pending.unlink(missing_ok=True)


async def _kubeconfig_users(settings: Settings) -> dict[str, int]:
    """Return the process IDs of the running daemons that read a kubeconfig at their start."""
    users = [daemon for daemon in roles(settings) if daemon != "control"]
    return {name: pid for name, pid in (await running(settings)).items() if pid and name in users}


def restart_pending_file(settings: Settings) -> Path:
    """Return the file that is present while daemons must be restarted to load new kubeconfigs."""
    return settings.layout.run / "kubeconfigs-replaced"


def containerd_pending_file(settings: Settings) -> Path:
    """Return the file that is present while containerd must be restarted to load a new configuration."""
    return settings.layout.run / "containerd-configuration-replaced"


def supervisor_pid(settings: Settings) -> int:
    """Return the running supervisor's process ID, or 0."""
    # An earlier version's supervisor, which may run on after an upgrade, has nothing in its lock.
    for path in (_lock_file(settings), settings.layout.run / "supervisor.pid"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text())
            if _runs(pid, "wherry.supervisor"):
                return pid
    return 0


async def running(settings: Settings) -> dict[str, int]:
    """Return the process ID of each daemon, 0 for one that does not run."""
    found = {}
    for daemon in command_lines(settings):
        if uses_systemd(settings):
            found[daemon] = await units.main_pid(daemon)
            continue
        found[daemon] = 0
        with contextlib.suppress(OSError, ValueError):
            pid = int((settings.layout.run / f"{daemon}.pid").read_text())
            found[daemon] = pid if _runs(pid, "") else 0
    return found


async def restarts(settings: Settings, daemon: str) -> int:
    """Return the number of restarts of a daemon since it was started by a command."""
    if uses_systemd(settings):
        return await units.restarts(daemon)
    with contextlib.suppress(OSError, ValueError):
        return int((settings.layout.run / f"{daemon}.starts").read_text()) - 1
    return 0


def _runs(pid: int, word: str) -> bool:
    """Return whether a process exists, is no zombie, and has a word on its command line."""
    try:
        process = Path(f"/proc/{pid}")
        state, arguments = process_files.stat(process)[0], process_files.command_line(process)
    except (OSError, ValueError):
        return False
    return state not in b"ZX" and word.encode() in arguments


async def last_lines(settings: Settings, daemon: str, number: int) -> list[str]:
    """Return the last lines that a daemon logged."""
    if uses_systemd(settings):
        unit = units.UNITS[daemon]
        result = await run(
            ["journalctl", "--quiet", "--output=cat", f"--lines={number}", f"--unit={unit}"], check=False
        )
        return result.stdout.splitlines()
    try:
        return (settings.layout.logs / f"{daemon}.log").read_text(errors="replace").splitlines()[-number:]
    except OSError:
        return []


def where_logged(settings: Settings, daemon: str) -> str:
    """Return the file of a daemon's log, or the command that shows it."""
    if uses_systemd(settings):
        return f"journalctl -u {units.UNITS[daemon].removesuffix('.service')}"
    return str(settings.layout.logs / f"{daemon}.log")
