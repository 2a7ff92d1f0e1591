"""The faults of a soak, drawn one after the other; what is stopped or fails continues by itself after some seconds.

Daemons are killed, ended and stopped, one or all together, and rules flushed. Each other fault has a target: what fails, and
can fail in one way at a time only.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.cluster import Cluster, eventually

DAEMONS = ("agent", "containerd", "control", "netproxy")
STOP_SECONDS = (1.0, 30.0)
"""Time that a stopped daemon stands still: less than the 40 s after which a node is called unreachable."""
LONG_STOP_SECONDS, LONG_STOPS = 60.0, 0.2
"""Duration of long stops, and their share of all."""
SUSPEND_SECONDS = (60.0, 100.0)
"""Time that all daemons stand still together: longer than the leases of nodes and leaders."""
FAIL_SECONDS = (1.0, 20.0)
"""Time that a disk, a plugin or a file server fails."""
START_SECONDS = 120.0
"""Time for the start of a daemon: one whose disk is frozen is killed only once it is thawed."""


@dataclass(frozen=True)
class Fault:
    """A fault with a target. `end` may be called twice."""

    target: str
    begin: Callable[[], None]
    end: Callable[[], None]
    seconds: tuple[float, float] = FAIL_SECONDS
    on_machine: bool = True
    """False if the end of the cluster ends it, too."""


class Faults:
    """Draws faults and does them to one cluster."""

    def __init__(
        self,
        made: Cluster,
        faults: dict[str, Fault],
        chance: random.Random,
        only: tuple[str, ...],
        suspend: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """`only`: the kinds to draw, by default all. `suspend` is called when daemons continue that were suspended."""
        self._made, self._chance, self._faults, self._suspended = made, chance, faults, suspend
        self._began = time.monotonic()
        self._running: dict[str, tuple[threading.Timer, Fault]] = {}
        self.done: Counter[str] = Counter()
        self.errors: list[str] = []
        """Faults that did not begin or end."""
        self._kinds: dict[str, Callable[[], None]] = {
            "kill agent and containerd": lambda: kill(self._made, "agent", "containerd"),
            "kill all": lambda: kill(self._made, *DAEMONS),
            "flush the nat rules": lambda: self._flush("nat"),
            "flush the filter rules": lambda: self._flush("filter"),
            "suspend all": self._suspend,
        }
        for daemon in DAEMONS:
            self._kinds[f"kill {daemon}"] = lambda name=daemon: kill(self._made, name)  # type: ignore[misc]
            self._kinds[f"terminate {daemon}"] = lambda name=daemon: self._end(name)  # type: ignore[misc]
            self._kinds[f"stop {daemon}"] = lambda name=daemon: self._stop(name)  # type: ignore[misc]
        for kind, fault in faults.items():
            self._kinds[kind] = lambda fault=fault: self._fail(fault)  # type: ignore[misc]
        if unknown := set(only) - self._kinds.keys():
            raise SystemExit(
                f"no such fault: {', '.join(sorted(unknown))}; there are: {', '.join(sorted(self._kinds))}"
            )
        self._drawn = sorted(only or self._kinds)

    def one(self) -> None:
        """Do a fault; none if the drawn one's target fails already."""
        kind = self._chance.choice(self._drawn)
        fault = self._faults.get(kind)
        if fault is not None and fault.target in self._running:
            return
        print(f"{time.monotonic() - self._began:.0f} s: {kind}", file=sys.stderr, flush=True)
        self._kinds[kind]()
        self.done[kind] += 1

    def over(self) -> None:
        """Wait until nothing is stopped or fails any more."""
        while running := list(self._running.values()):
            for timer, _ in running:
                timer.join()

    def mend(self) -> None:
        """End at once what does not end with the cluster."""
        for timer, fault in list(self._running.values()):
            timer.cancel()
            if fault.on_machine:
                self._finish(fault)
        self._running.clear()

    def _end(self, daemon: str) -> None:
        pid = wait_pid(self._made, daemon)
        _signal(pid, signal.SIGCONT)  # one that is stopped would not hear of it
        _signal(pid, signal.SIGTERM)
        wait_pid(self._made, daemon, pid)

    def _stop(self, daemon: str) -> None:
        seconds = LONG_STOP_SECONDS if self._chance.random() < LONG_STOPS else self._chance.uniform(*STOP_SECONDS)
        self._halt((daemon,), seconds)

    def _suspend(self) -> None:
        """Stop all daemons together, as a machine does that is suspended; their monotonic clock stands still meanwhile."""
        began = time.monotonic()
        self._halt(DAEMONS, self._chance.uniform(*SUSPEND_SECONDS), lambda: self._suspended(time.monotonic() - began))

    def _halt(
        self, daemons: tuple[str, ...], seconds: float, before_resuming: Callable[[], None] = lambda: None
    ) -> None:
        pids: dict[str, int] = {}
        for daemon in daemons:
            with contextlib.suppress(OSError, ValueError):  # one that is being started has no process
                pids[daemon] = self._made.pid(daemon)
                _signal(pids[daemon], signal.SIGSTOP)
        target = f"{self.done.total()}: {', '.join(pids)}"
        resumed = False

        def resume() -> None:
            nonlocal resumed
            if not resumed:
                resumed = True
                before_resuming()
                self._resume(pids)

        self._later(seconds, Fault(target, lambda: None, resume))

    def _resume(self, pids: dict[str, int]) -> None:
        for daemon, pid in pids.items():
            with contextlib.suppress(OSError, ValueError):
                if self._made.pid(daemon) == pid:
                    _signal(pid, signal.SIGCONT)

    def _fail(self, fault: Fault) -> None:
        try:
            fault.begin()
        except BaseException:
            self._finish(fault)
            raise
        self._later(self._chance.uniform(*fault.seconds), fault)

    def _later(self, seconds: float, fault: Fault) -> None:
        def end() -> None:
            self._finish(fault)
            self._running.pop(fault.target, None)

        timer = threading.Timer(seconds, end)
        self._running[fault.target] = (timer, fault)
        timer.start()

    def _finish(self, fault: Fault) -> None:
        try:
            fault.end()
        except Exception as error:  # what does not end is a result of the soak
            self.errors.append(f"{fault.target}: {error}")

    def _flush(self, table: str) -> None:
        self._made.host.run("iptables", "-w", "-t", table, "-F")


def kill(made: Cluster, *daemons: str) -> None:
    """Kill daemons together and return when all are started again."""
    before = {daemon: wait_pid(made, daemon) for daemon in daemons}
    for pid in before.values():
        _signal(pid, signal.SIGKILL)
    for daemon, pid in before.items():
        wait_pid(made, daemon, pid)


def wait_pid(made: Cluster, daemon: str, before: int = 0) -> int:
    """Wait until a daemon has a process other than the one before, and return its ID."""

    def found() -> int | None:
        with contextlib.suppress(OSError, ValueError):
            now = made.pid(daemon)
            return now if now != before else None
        return None

    return eventually(found, f"{daemon} starts again", START_SECONDS)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
