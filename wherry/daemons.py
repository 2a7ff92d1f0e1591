"""Start and stop the roles on this machine: through systemd where it runs, else through the supervisor.

Either way the same four command lines run: containerd and one process a role.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path

from kube.process import run
from wherry import supervisor
from wherry.errors import WherryError
from wherry.settings import Settings

UNITS = {
    "containerd": "wherry-containerd.service",
    "control": "wherry-control.service",
    "agent": "wherry-agent.service",
    "netproxy": "wherry-netproxy.service",
}
ROLES = {"control": "server", "agent": "agent", "netproxy": "proxy"}
UNIT_FILES = Path(__file__).resolve().parent.parent / "systemd"
STOP_SECONDS = 90.0


def uses_systemd(settings: Settings) -> bool:
    """True where units are installed: systemd is PID 1 and this is the machine's own installation."""
    return settings.prefix == "/" and Path("/run/systemd/system").is_dir()


def command_lines(settings: Settings) -> dict[str, list[str]]:
    """Return daemon -> command line, in the order of starting."""
    found: dict[str, list[str]] = {}
    if settings.own_containerd:
        binary = shutil.which("containerd")
        if not binary:
            raise WherryError("containerd is not installed: apt-get install containerd runc")
        found["containerd"] = [binary, "--config", str(settings.layout.containerd_configuration)]
    for daemon, role in ROLES.items():
        if daemon == "control" and settings.is_worker:
            continue
        found[daemon] = [sys.executable, "-m", "wherry.roles", role, "--prefix", settings.prefix]
    return found


async def start(settings: Settings) -> None:
    """Start everything and return; readiness is the caller's to wait for."""
    if uses_systemd(settings):
        await _install_units(settings)
        await run(["systemctl", "enable", "--now", "--quiet", *_units(settings)], timeout=180)
        return
    if supervisor_pid(settings):
        return
    layout = settings.layout
    layout.run.mkdir(parents=True, exist_ok=True)
    layout.logs.mkdir(parents=True, exist_ok=True)
    plan = layout.run / "daemons.json"
    supervisor.write_plan(plan, layout.run, layout.logs, command_lines(settings))
    with (layout.logs / "supervisor.log").open("ab") as log:
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "wherry.supervisor", str(plan)],
            os.environ,
            setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
            ],
        )


async def stop(settings: Settings) -> bool:
    """Stop everything that runs and wait for its end; False where nothing ran. Containers live on."""
    if uses_systemd(settings):
        await run(["systemctl", "disable", "--now", "--quiet", *reversed(_units(settings))], timeout=180, check=False)
        return True
    pid = supervisor_pid(settings)
    if not pid:
        return False
    os.kill(pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_SECONDS):
            while _runs(pid, "wherry.supervisor"):
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise WherryError(f"the supervisor (process {pid}) does not end; see {settings.layout.logs}") from error
    return True


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
            shown = await run(["systemctl", "show", "--property=MainPID", "--value", UNITS[daemon]], check=False)
            found[daemon] = int(shown.stdout.strip() or 0)
            continue
        found[daemon] = 0
        with contextlib.suppress(OSError, ValueError):
            pid = int((settings.layout.run / f"{daemon}.pid").read_text())
            found[daemon] = pid if _runs(pid, "") else 0
    return found


def _runs(pid: int, word: str) -> bool:
    """True where a process lives (a zombie does not) and has a word on its command line."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX" and word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _units(settings: Settings) -> list[str]:
    return [UNITS[daemon] for daemon in command_lines(settings)]


async def _install_units(settings: Settings) -> None:
    for unit in _units(settings):
        text = (UNIT_FILES / unit).read_text().replace("/opt/wherry/bin/python", sys.executable)
        Path("/etc/systemd/system", unit).write_text(text)
    for folder, name in (("/etc/sysctl.d", "90-wherry.conf"), ("/etc/modules-load.d", "wherry.conf")):
        source = UNIT_FILES / Path(folder).name / name
        shutil.copyfile(source, Path(folder, name))
    await run(["systemctl", "daemon-reload"])
    await run(["systemctl", "restart", "systemd-modules-load.service"], check=False)
    await run(["sysctl", "--quiet", "--load", "/etc/sysctl.d/90-wherry.conf"], check=False)
