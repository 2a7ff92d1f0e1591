"""The faults of a soak, one drawn after the other: daemons killed, ended and stopped, rules flushed, and parts of the site
that fail for some seconds: the store's disk full or frozen, the key management plugin away, a file server hung.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable

from bench.soak_site import Site
from tests.support.cluster import Cluster, eventually

DAEMONS = ("agent", "containerd", "control", "netproxy")
STOP_SECONDS = (1.0, 30.0)
"""Time that a stopped daemon stands still: less than the 40 s after which a node is called unreachable."""
LONG_STOP_SECONDS, LONG_STOPS = 60.0, 0.2
"""Duration of long stops, and their share of all."""
FAIL_SECONDS = (1.0, 20.0)
"""Time that a disk, a plugin or a file server fails."""


class Faults:
    """Draws faults and does them to one cluster; what is stopped or fails goes on by itself."""

    def __init__(self, made: Cluster, site: Site, chance: random.Random) -> None:
        self._made, self._chance = made, chance
        self._timers: list[threading.Timer] = []
        self.done: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[], None]] = {
            "kill agent and containerd": lambda: self._kill("agent", "containerd"),
            "kill all": lambda: self._kill(*DAEMONS),
            "flush the nat rules": lambda: self._flush("nat"),
            "flush the filter rules": lambda: self._flush("filter"),
            "fill the store's disk": lambda: self._fail(site.disk.fill, site.disk.free),
            "freeze the store's disk": lambda: self._fail(site.freeze, site.thaw),
            "stop the key management plugin": lambda: self._fail(
                lambda: setattr(site.plugin, "away", True), lambda: setattr(site.plugin, "away", False)
            ),
            "hang the file server": lambda: self._fail(site.files.hang, site.files.answer),
        }
        for daemon in DAEMONS:
            self._kinds[f"kill {daemon}"] = lambda name=daemon: self._kill(name)  # type: ignore[misc]
            self._kinds[f"terminate {daemon}"] = lambda name=daemon: self._end(name)  # type: ignore[misc]
            self._kinds[f"stop {daemon}"] = lambda name=daemon: self._stop(name)  # type: ignore[misc]

    def one(self) -> None:
        """Do a fault."""
        kind = self._chance.choice(sorted(self._kinds))
        self._kinds[kind]()
        self.done[kind] += 1

    def over(self) -> None:
        """Wait until nothing is stopped or fails any more."""
        for timer in self._timers:
            timer.join()

    def _kill(self, *daemons: str) -> None:
        before = {daemon: self._made.pid(daemon) for daemon in daemons}
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        for daemon, pid in before.items():
            self._started(daemon, pid)

    def _end(self, daemon: str) -> None:
        pid = self._made.pid(daemon)
        os.kill(pid, signal.SIGCONT)  # one that is stopped would not hear of it
        os.kill(pid, signal.SIGTERM)
        self._started(daemon, pid)

    def _started(self, daemon: str, before: int) -> None:
        def again() -> bool:
            with contextlib.suppress(OSError, ValueError):
                return self._made.pid(daemon) != before
            return False

        eventually(again, f"{daemon} starts again")

    def _stop(self, daemon: str) -> None:
        pid = self._made.pid(daemon)
        os.kill(pid, signal.SIGSTOP)
        seconds = LONG_STOP_SECONDS if self._chance.random() < LONG_STOPS else self._chance.uniform(*STOP_SECONDS)
        self._later(seconds, lambda: self._go_on(daemon, pid))

    def _fail(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        begin()
        self._later(self._chance.uniform(*FAIL_SECONDS), end)

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, work)
        timer.start()
        self._timers = [t for t in self._timers if t.is_alive()] + [timer]

    def _go_on(self, daemon: str, pid: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._made.pid(daemon) == pid:
                os.kill(pid, signal.SIGCONT)

    def _flush(self, table: str) -> None:
        self._made.host.run("iptables", "-w", "-t", table, "-F")
