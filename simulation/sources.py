"""Replaces the sources of time and chance in this Python process for one run by those of a seed."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import control.server.serve
import kube.leases
import kube.uid

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Beginning of virtual time, in all runs."""


ELECTION = {"LEASE_SECONDS": 60, "RENEW_SECONDS": 40, "RETRY_SECONDS": 10}
"""Seconds of the election of controllers and scheduler: four times as long as in production."""


class _Socket:
    """A listening socket that nobody connects to."""

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 6443

    def setblocking(self, flag: bool) -> None: ...  # noqa: FBT001 - the signature of a socket

    def setsockopt(self, *option: int) -> None: ...

    def listen(self, backlog: int) -> None: ...

    def close(self) -> None: ...


@contextlib.contextmanager
def replaced(rng: random.Random, seconds: Callable[[], float]) -> Iterator[None]:
    """Replace them while the block runs; `seconds` returns the virtual time."""
    epoch = START.timestamp()
    uid_pool: Any = kube.uid
    replacements: list[tuple[Any, str, Any]] = [
        (os, "urandom", rng.randbytes),
        (random, "_urandom", rng.randbytes),
        (uid_pool, "_pool", b""),
        (uid_pool, "_at", 0),
        # Elections every 2 s are most of the work of an idle cluster.
        *((kube.leases, name, value) for name, value in ELECTION.items()),
        (control.server.serve, "_bind", lambda address, port: _Socket()),
        (time, "time", lambda: epoch + seconds()),
        (time, "time_ns", lambda: int((epoch + seconds()) * 1e9)),
        (time, "clock_gettime", lambda clock: seconds()),
        *((time, name, seconds) for name in ("monotonic", "perf_counter", "thread_time", "process_time")),
        *((time, name, lambda: int(seconds() * 1e9)) for name in ("monotonic_ns", "perf_counter_ns", "thread_time_ns")),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replacements]
    state = random.getstate()
    random.seed(rng.random())
    for module, name, value in replacements:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        random.setstate(state)
