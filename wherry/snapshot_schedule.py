"""Takes snapshots on a schedule, in the control plane's process, with and without systemd.

A snapshot is taken by a process of its own (wherry.scheduled_snapshot), which has the account and the sandbox of the control
plane: it reads all of the database, and the API server's memory and event loop have no part in it. The options are read again
before each, so a change needs no restart. One that was missed, because the machine was off, is taken after the start; one that
failed is repeated after five minutes, later each time, up to an hour. If only its copy to S3 or the deletion of surplus ones
failed, these are repeated: snapshots of the last hours would take the places of those of the last days.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import msgspec

from kube.clock import SYSTEM, Clock
from kube.counters import Counter, Gauge
from kube.cron import Schedule
from kube.loops import Loops
from kube.process import CommandError, run
from wherry import snapshot_state
from wherry.errors import WherryError
from wherry.settings import Settings, load
from wherry.snapshot_options import machine_zone
from wherry.snapshot_state import State

log = logging.getLogger("wherry.snapshots")

START_SECONDS, CHECK_SECONDS = 20.0, 20.0
"""Seconds after the start, in which the machine has other work; and between two looks at the clock and the options."""
FIRST_RETRY, LAST_RETRY = 300.0, 3600.0
TAKE_SECONDS = 1800.0
"""Seconds that a snapshot may take, besides its copy to S3."""

SUCCEEDED = Gauge("wherry_snapshot_last_success_timestamp_seconds", "Time of the last scheduled snapshot; 0: none")
SIZE = Gauge("wherry_snapshot_last_size_bytes", "Size of the last scheduled snapshot")
FAILING = Gauge("wherry_snapshot_failed_attempts", "Failed attempts since the last scheduled snapshot that succeeded")
ATTEMPTS = Counter("wherry_snapshots", "Scheduled snapshots by result: success or failure", "result")


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The result that the process prints: `path` is empty if there is no file, `problem` if everything succeeded."""

    path: str = ""
    size: int = 0
    keys: int = 0
    revision: int = 0
    url: str = ""
    deleted: list[str] = []
    problem: str = ""


Take = Callable[[Settings, str], Awaitable[Taken]]
"""Takes a snapshot, or finishes the one of a path."""


def due(schedule: Schedule, state: State, zone: tzinfo) -> datetime | None:
    """Return the time of the next snapshot, which may be past; None if there is none within five years."""
    since = datetime.fromtimestamp(max(state.since, state.attempted), UTC)
    found = schedule.after(since, zone)
    if not state.failures:
        return found
    pause = min(FIRST_RETRY * 2 ** min(state.failures - 1, 10), LAST_RETRY)
    again = since + timedelta(seconds=pause)
    return again if found is None else min(found, again)


class SnapshotSchedule:
    """The schedule of one machine."""

    def __init__(self, settings: Settings, take: Take, clock: Clock, zone: Callable[[], tzinfo] = machine_zone) -> None:
        self._settings, self._take, self._clock, self._zone = settings, take, clock, zone
        self._changed = self._mark()
        self.state = snapshot_state.load(settings)

    async def run(self) -> None:
        """Take snapshots until cancelled."""
        self._show()
        await self._clock.sleep(START_SECONDS)
        while True:
            self._reread()
            now = self._clock.now()
            schedule = self._settings.snapshot_options.scheduled
            since = max(self.state.since, self.state.attempted)
            if (
                schedule is not None and not 0 < since <= now.timestamp()
            ):  # there is none yet, or the clock was set back
                attempted = min(self.state.attempted, now.timestamp())
                self._keep(msgspec.structs.replace(self.state, since=now.timestamp(), attempted=attempted))
            at = None if schedule is None else due(schedule, self.state, self._zone())
            left = CHECK_SECONDS if at is None else (at - now).total_seconds()
            if left > 0:
                await self._clock.sleep(min(left, CHECK_SECONDS))
                continue
            assert schedule is not None
            await self._attempt(now.timestamp(), self._unfinished(schedule, now))

    def _mark(self) -> tuple[int, int]:
        """Return the time and the inode of the file of the settings."""
        try:
            found = os.stat(self._settings.layout.settings)
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino

    def _reread(self) -> None:
        mark = self._mark()
        if mark == self._changed:
            return
        self._changed = mark
        try:
            self._settings = load(self._settings.prefix) or self._settings
        except WherryError as error:
            log.warning("the options of snapshots are not reread: %s", error)

    def _unfinished(self, schedule: Schedule, now: datetime) -> str:
        """Return the path of the last snapshot if it is not finished, and no other is due; else ""."""
        coming = schedule.after(datetime.fromtimestamp(self.state.succeeded, UTC), self._zone())
        return self.state.unfinished if coming is None or coming > now else ""

    async def _attempt(self, now: float, again: str) -> None:
        taken = await self._take(self._settings, again)
        for path in taken.deleted:
            log.info("removed the snapshot %s", path)
        changes: dict[str, Any] = {"attempted": now, "problem": taken.problem}
        if taken.path and taken.path != again:
            changes |= {"succeeded": now, "path": taken.path, "size": taken.size}
            log.info(
                "snapshot %s: %d keys at revision %d, %d bytes", taken.path, taken.keys, taken.revision, taken.size
            )
        if taken.url:
            changes["copied"] = now
            log.info("snapshot %s was copied to %s", taken.path, taken.url)
        changes["unfinished"] = taken.path if taken.problem else ""
        changes["failures"] = self.state.failures + 1 if taken.problem else 0
        if taken.problem:
            log.error("the scheduled snapshot failed: %s", taken.problem)
        ATTEMPTS.add("failure" if taken.problem else "success")
        self._keep(msgspec.structs.replace(self.state, **changes))

    def _keep(self, state: State) -> None:
        self.state = state
        self._show()
        try:
            snapshot_state.save(self._settings, state)
        except OSError as error:
            log.warning("the result of the snapshot is not saved: %s", error)

    def _show(self) -> None:
        SUCCEEDED.set(value=self.state.succeeded)
        SIZE.set(value=self.state.size)
        FAILING.set(value=self.state.failures)


async def take(settings: Settings, again: str = "") -> Taken:
    """Take a snapshot in a process of its own, or finish the one of a path."""
    options = settings.snapshot_options
    seconds = TAKE_SECONDS + (4 * options.timeout if options.bucket else 0)
    argv = [sys.executable, "-P", "-m", "wherry.scheduled_snapshot", settings.prefix, *([again] if again else [])]
    try:
        result = await run(argv, timeout=seconds, check=False)
    except CommandError as error:
        return Taken(problem=str(error))
    try:
        return msgspec.json.decode(result.stdout, type=Taken)
    except msgspec.MsgspecError:
        lines = result.stderr.strip().splitlines()
        return Taken(problem=f"exit status {result.returncode}: {lines[-1][:1000] if lines else 'no output'}")


async def run_with_snapshots(work: Coroutine[Any, Any, None], settings: Settings, clock: Clock = SYSTEM) -> None:
    """Run the control plane, and snapshots for as long as it runs."""
    loop = Loops(clock).run("snapshots", lambda: SnapshotSchedule(settings, take, clock).run())
    schedule = asyncio.create_task(loop, name="snapshots")
    try:
        await work
    finally:
        schedule.cancel()
        await asyncio.gather(schedule, return_exceptions=True)
