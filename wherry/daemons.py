"""Start and stop the roles on this machine: through systemd where it runs, else through the supervisor.

Either way the same command lines run: containerd and one process a role.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

from kube.files import write_file
from kube.process import run
from wherry import file_modes, supervisor, units
from wherry.errors import WherryError
from wherry.settings import Settings
from wherry.units import uses_systemd

STOP_SECONDS = 90.0
PYTHON = (sys.executable, "-P", "-m")
"""Without -P, Python would first look for modules in the folder where the command was typed, and run them as root."""


def roles(settings: Settings) -> dict[str, str]:
    """Return daemon -> role, in the order of starting."""
    found = {} if settings.is_worker else {"control": "server"}
    found["agent"] = "agent"
    if settings.own_proxy:
        found["netproxy"] = "proxy"
    if settings.dns_alone:
        found["dns"] = "dns"
    return found


def command_lines(settings: Settings) -> dict[str, list[str]]:
    """Return daemon -> command line, in the order of starting."""
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
    """Start everything and return; readiness is the caller's to wait for."""
    if uses_systemd(settings):
        lines = command_lines(settings)
        await units.start(settings, list(lines), containerd=lines.get("containerd", [""])[0])
        return
    if supervisor_pid(settings):
        return
    layout = settings.layout
    file_modes.make_folders(settings)
    plan = layout.run / "daemons.json"
    supervisor.write_plan(plan, layout.run, layout.logs, command_lines(settings))
    log_mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with os.fdopen(os.open(layout.logs / "supervisor.log", log_mode, 0o640), "ab") as log:
        pid = os.posix_spawn(
            sys.executable,
            [*PYTHON, "wherry.supervisor", str(plan)],
            os.environ,
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
            ],
        )
    # It writes this down itself, but only once it runs: who is interrupted before must find it too.
    write_file(layout.run / "supervisor.pid", f"{pid}\n".encode(), 0o600)


async def stop(settings: Settings) -> bool:
    """Stop everything that runs and wait for its end; False where nothing ran. Containers keep running."""
    if uses_systemd(settings):
        return await units.stop(command_lines(settings))
    pid = supervisor_pid(settings)
    if pid:
        os.kill(pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while _runs(pid, "wherry.supervisor"):
                    await asyncio.sleep(0.05)
        except TimeoutError as error:
            raise WherryError(f"the supervisor (process {pid}) does not end; see {settings.layout.logs}") from error
    # Those of a supervisor that was killed run on.
    left = supervisor.left_behind(settings.layout.run, command_lines(settings))
    await asyncio.to_thread(supervisor.end, left)
    return bool(pid or left)


def supervisor_pid(settings: Settings) -> int:
    """Return the running supervisor's process ID, or 0."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((settings.layout.run / "supervisor.pid").read_text())
        if _runs(pid, "wherry.supervisor"):
            return pid
    return 0


async def running(settings: Settings) -> dict[str, int]:
    """Return daemon -> process ID, 0 for one that does not run."""
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
    """Return how often a daemon was started again since it was asked to start."""
    if uses_systemd(settings):
        return await units.restarts(daemon)
    with contextlib.suppress(OSError, ValueError):
        return int((settings.layout.run / f"{daemon}.starts").read_text()) - 1
    return 0


def _runs(pid: int, word: str) -> bool:
    """True where a process lives (a zombie does not) and has a word on its command line."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" and word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def last_lines(settings: Settings, daemon: str, number: int) -> list[str]:
    """Return the last lines that a daemon logged."""
    if uses_systemd(settings):
        unit = units.UNITS[daemon]
        said = await run(["journalctl", "--quiet", "--output=cat", f"--lines={number}", f"--unit={unit}"], check=False)
        return said.stdout.splitlines()
    try:
        return (settings.layout.logs / f"{daemon}.log").read_text(errors="replace").splitlines()[-number:]
    except OSError:
        return []


def where_logged(settings: Settings, daemon: str) -> str:
    """Return what to look at, or type, for a daemon's log."""
    if uses_systemd(settings):
        return f"journalctl -u {units.UNITS[daemon].removesuffix('.service')}"
    return str(settings.layout.logs / f"{daemon}.log")
