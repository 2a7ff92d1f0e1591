"""Keep the daemons running where there is no systemd: start them, write down their process IDs, start again what ends.

It is a process of its own with nothing but the interpreter in it (one loop in waitpid, no packages), so it costs little
and does not fall with what it watches. A daemon that ends is started again at once, and never given up; one that ends within
three seconds of its start, again and again, waits longer each time, from 0.2 s to 10 s. SIGTERM stops all of them, last
started first; containers keep running, since each has a shim of its own. Daemons of a supervisor that was killed are
ended before their successors start. There is one supervisor at a time for a folder of process IDs.

    python -m wherry.supervisor PLAN.json [DESCRIPTOR OF ITS LOCK]      (see `write_plan`)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kube import process_files

FIRST_DELAY, LAST_DELAY, SETTLED = 0.2, 10.0, 3.0
STOP_SECONDS = 20.0
NOTE_AGAIN = 1.0
INHERITED = 3
"""Descriptor of the lock, if the command that starts a supervisor has locked it."""
MASK, CONTAINERS_MASK = 0o077, 0o022
MAKE_FOR_CONTAINERS = ("containerd", "agent")
"""Daemons whose files processes of containers read under users of their own (/etc/resolv.conf, volumes)."""
LOG_BYTES = 32 << 20
"""A log past this is moved aside when its daemon starts."""


def write_plan(path: Path, run: Path, logs: Path, daemons: dict[str, list[str]]) -> None:
    """Write what to run: daemon name -> command line, started in this order."""
    plan = {"run": str(run), "logs": str(logs), "daemons": [{"name": n, "argv": a} for n, a in daemons.items()]}
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(json.dumps(plan, indent=1))


class Daemon:
    def __init__(self, name: str, argv: list[str], run: Path, logs: Path) -> None:
        self.name, self.argv = name, argv
        self.pid_file, self.log = run / f"{name}.pid", logs / f"{name}.log"
        self.pid = 0
        self.started = 0.0
        self.delay = 0.0
        self.due = 0.0
        self.starts, self.starts_file = 0, run / f"{name}.starts"
        self.noted = True

    def start(self) -> None:
        output = self._output()
        os.umask(CONTAINERS_MASK if self.name in MAKE_FOR_CONTAINERS else MASK)
        try:
            self.pid = os.posix_spawnp(
                self.argv[0],
                self.argv,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                ],
                setsigmask=(),
                setpgroup=0,
            )
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(output, f"supervisor: cannot start {self.argv[0]}: {error}\n".encode())
            self.wait()
            return
        finally:
            os.umask(MASK)
            os.close(output)
        self.started = time.monotonic()
        self.starts += 1
        self.note()

    def _output(self) -> int:
        """Open the log; if that fails, the daemon runs and its output is lost."""
        try:
            if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
                self.log.replace(self.log.with_suffix(".log.1"))
            return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError:
            return os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC)

    def note(self) -> None:
        """Write down the process ID and how often it was started; a full disk has it done later."""
        try:
            self.starts_file.write_text(f"{self.starts}\n")
            self.pid_file.write_text(f"{self.pid}\n")
            self.noted = True
        except OSError:
            self.noted = False

    def ended(self) -> None:
        """Note the end and set the moment of the next start."""
        if time.monotonic() - self.started > SETTLED:
            self.delay = 0.0
        self.wait()
        with contextlib.suppress(OSError):
            self.pid_file.unlink(missing_ok=True)

    def wait(self) -> None:
        """Set the moment of the next start, and have the one after it wait longer."""
        self.pid, self.due = 0, time.monotonic() + self.delay
        self.delay = min(max(self.delay * 2, FIRST_DELAY), LAST_DELAY)


def supervise(daemons: list[Daemon]) -> None:
    """Run the daemons until SIGTERM or SIGINT."""
    watched = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    for daemon in daemons:
        daemon.start()
    while True:
        waiting = [d.due - time.monotonic() for d in daemons if not d.pid]
        waiting += [NOTE_AGAIN for d in daemons if not d.noted]
        # With all running there is nothing to do until a signal; an hour is as good as for ever.
        got = signal.sigtimedwait(watched, max(0.0, min(waiting, default=3600.0)))
        if got is not None and got.si_signo != signal.SIGCHLD:
            stop(daemons)
            return
        reap(daemons)
        for daemon in daemons:
            if not daemon.pid and daemon.due <= time.monotonic():
                daemon.start()
            elif daemon.pid and not daemon.noted:
                daemon.note()


def left_behind(run: Path, command_lines: dict[str, list[str]]) -> list[int]:
    """Return the process IDs that `run` names whose processes still have the command line of their daemon."""
    found = []
    for name, argv in command_lines.items():
        with contextlib.suppress(OSError, ValueError):
            pid = int((run / f"{name}.pid").read_text())
            arguments = process_files.command_line(Path(f"/proc/{pid}"))
            if arguments == b"".join(os.fsencode(word) + b"\0" for word in argv):
                found.append(pid)
    return found


def end(pids: list[int]) -> None:
    """End processes that may be nobody's children: SIGTERM, and SIGKILL for those that take longer than `STOP_SECONDS`."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while (pids := [pid for pid in pids if _lives(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)


def _lives(pid: int) -> bool:
    """Return whether a process has not ended; a zombie has."""
    try:
        return process_files.stat(Path(f"/proc/{pid}"))[0] not in b"ZX"
    except OSError:
        return False


def reap(daemons: list[Daemon]) -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for daemon in daemons:
            if daemon.pid == pid:
                daemon.ended()


def stop(daemons: list[Daemon]) -> None:
    for daemon in reversed(daemons):
        if not daemon.pid:
            continue
        deadline = time.monotonic() + STOP_SECONDS
        os.kill(daemon.pid, signal.SIGTERM)
        while daemon.pid:
            if signal.sigtimedwait({signal.SIGCHLD}, max(0.0, deadline - time.monotonic())) is None:
                os.kill(daemon.pid, signal.SIGKILL)
                deadline += STOP_SECONDS
            reap(daemons)


def lock(path: Path) -> int:
    """Return the descriptor of a file that this process alone has locked, until it is closed. Raise BlockingIOError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def note_pid(descriptor: int, pid: int) -> None:
    """Write a supervisor's process ID into its lock, which its successor cannot have meanwhile.

    All IDs have the same length, and replace each other in one write: who reads finds one or the other, never none.
    """
    text = f"{pid:<10}\n".encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))


def main() -> None:
    os.umask(MASK)
    plan: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    run, logs = Path(plan["run"]), Path(plan["logs"])
    for folder in (run, logs):
        folder.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        lock_descriptor = int(sys.argv[2])
        os.set_inheritable(lock_descriptor, False)
    else:
        try:
            lock_descriptor = lock(run / "supervisor.lock")  # until this process ends
        except BlockingIOError:
            sys.exit("supervisor: another one runs these daemons")
    mine = run / "supervisor.pid"
    with contextlib.suppress(OSError):  # a full disk
        note_pid(lock_descriptor, os.getpid())
        mine.write_text(f"{os.getpid()}\n")
    try:
        end(left_behind(run, {d["name"]: d["argv"] for d in plan["daemons"]}))
        supervise([Daemon(d["name"], d["argv"], run, logs) for d in plan["daemons"]])
    finally:
        with contextlib.suppress(OSError):
            os.ftruncate(lock_descriptor, 0)
            mine.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
