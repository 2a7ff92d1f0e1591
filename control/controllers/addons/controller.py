"""Controller of addons: applies the files of a folder, deletes what left them, and reverts changes to their objects.

The folder is scanned every second or two, as configuration files are (assembly/reloading.py): that finds every way of replacing
a file. Objects are compared every CHECK_SECONDS by their resourceVersions, and applied again if they changed.

Several control planes have a folder each, and the leader applies its own. It deletes the objects of a file that is missing
only if it applied that file itself (record.py) and was the last one to do so: a leader without the file, and a machine with
a restored snapshot, leave them alone (state Kept).
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import os
from collections.abc import Collection
from dataclasses import dataclass

from control.controllers.addons import folder, manifest
from control.controllers.addons.application import Application
from control.controllers.addons.applyset import INVALID, KEPT, LONGEST_MESSAGE, REFUSED, Parent, addon_identifier
from control.controllers.addons.folder import AddonFile, FileChanged, FileRefused, FolderRefused
from control.controllers.addons.manifest import Manifest, ManifestError
from control.controllers.addons.parents import ParentConflict, Parents
from control.controllers.addons.record import Record
from control.controllers.addons.reports import Reports
from control.controllers.addons.settings import AddonSettings
from control.controllers.addons.tracking import PRUNE_SECONDS, SETTLE_SECONDS, Files, Tracked
from control.controllers.context import Context
from kube import cancellation
from kube.controller import Controller
from kube.errors import StatusError

log = logging.getLogger(__name__)

COMPONENT = "addon-controller"
SCAN_SECONDS, CHECK_SECONDS = 2.0, 30.0
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
REMOVAL_POLL, KEPT_SECONDS = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A file's objects, and the digest of its content."""

    file: AddonFile
    content: str
    manifests: list[Manifest]


class AddonController:
    """Reconciles addons by their names."""

    def __init__(self, context: Context, settings: AddonSettings) -> None:
        self._settings, self._clock = settings, context.clock
        self._reports = Reports(context.recorder(COMPONENT))
        self._parents = Parents(context.client)
        self._application = Application(context.client, self._parents, context.clock, self._abandoned)
        self._files, self._record = Files(), Record(settings.record)
        self._owners = {0, os.geteuid()}
        self._parsed: dict[str, _Parsed] = {}
        self._retry: dict[str, float] = {}
        self._problem = ""
        self._usable_since: float | None = None
        """Time from which on every scan of the folder succeeded; None if the last one did not."""
        self.controller = Controller(
            "addons", self.reconcile, workers=2, clock=context.clock, owner=lambda name: f"addon {name}"
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, self._follow, "addon files")
            cancellation.start(group, self.controller.run, "addons")

    # -- the folder -------------------------------------------------------------------------------------------------
    async def _follow(self) -> None:
        """Scan the folder again and again; addons that were applied before count from the first scan on."""
        await self._scan()
        while True:
            try:
                for addon in await self._parents.addons():
                    self._files.expect(addon, self._clock.monotonic())
                    self.controller.enqueue(addon)
                break
            except StatusError as error:
                log.warning("addons that were applied before cannot be listed: %s", error)
                await self._clock.sleep(SCAN_SECONDS)
        while True:
            await self._clock.sleep(SCAN_SECONDS)
            await self._scan()

    async def _scan(self) -> None:
        """Enqueue the addons whose files changed; a folder that cannot be used changes nothing."""
        try:
            found = await asyncio.to_thread(folder.scan, self._settings.folder, self._owners)
        except FolderRefused as error:
            if self._problem != str(error):
                log.warning("addons: %s", error)
            self._problem, self._usable_since = str(error), None
            return
        now = self._clock.monotonic()
        self._problem = ""
        self._usable_since = now if self._usable_since is None else self._usable_since
        changed, problems = self._files.update(found, now)
        for problem in problems:
            log.warning("addons: %s", problem)
        for name in changed:
            self._retry.pop(name, None)
            self.controller.enqueue(name)

    # -- one addon --------------------------------------------------------------------------------------------------
    async def reconcile(self, name: str) -> float | None:
        """Apply an addon or remove it; return the seconds until it is checked again."""
        tracked = self._files.get(name)
        if tracked is None:
            return None
        age = self._clock.monotonic() - tracked.since
        try:
            if name in self._settings.disabled:
                return await self._remove(name, "it is disabled")
            if tracked.file is None:
                return await self._missing(name, age)
            if age < SETTLE_SECONDS:
                return SETTLE_SECONDS - age
            return await self._apply(name, tracked, tracked.file, age)
        except ParentConflict as error:
            log.warning("addon %s: %s", name, str(error))
            return CHECK_SECONDS
        except StatusError as error:
            log.warning("addon %s: %s", name, error.message)
            return self._back_off(name)
        finally:
            tracked.attempted = tracked.attempted or age >= SETTLE_SECONDS

    async def _apply(self, name: str, tracked: Tracked, file: AddonFile, age: float) -> float:
        stored = await self._parents.get(name)
        parent = dataclasses.replace(stored or Parent(name), file=file.path.name)
        try:
            content, manifests = await self._content(name, file)
        except FileChanged:
            return SETTLE_SECONDS  # the next scan finds out
        except (FileRefused, ManifestError) as error:
            state = REFUSED if isinstance(error, FileRefused) else INVALID
            text = (str(error) if state == REFUSED else f"{file.path}: {error}")[:LONGEST_MESSAGE]
            wanted = dataclasses.replace(parent, state=state, message=text)
            parent = await self._parents.save(wanted, stored)
            if stored is None or (stored.state, stored.message) != (state, text):
                self._reports.warn(parent, "AddonInvalid", text)
            return CHECK_SECONDS
        parent = dataclasses.replace(parent, content=content, server=self._settings.server)
        await self._record.add(name)
        outcome = await self._application.apply(parent, stored, manifests, prune=age >= PRUNE_SECONDS)
        self._reports.attempted(outcome, stored)
        if outcome.problems:
            return self._back_off(name)
        self._retry.pop(name, None)
        if outcome.remaining:
            return max(PRUNE_SECONDS - age, REMOVAL_POLL)
        return CHECK_SECONDS

    async def _content(self, name: str, file: AddonFile) -> tuple[str, list[Manifest]]:
        """Return the digest of a file and its objects. Raise FileRefused, FileChanged, ManifestError."""
        if file.problem:
            raise FileRefused(file.problem)
        before = self._parsed.get(name)
        if before is None or before.file != file:
            before = self._parsed[name] = await asyncio.to_thread(_parsed, name, file, self._owners)
        return before.content, before.manifests

    async def _missing(self, name: str, age: float) -> float | None:
        """Remove an addon whose file is there no more, once the others had their turn: a file may have been renamed."""
        if self._usable_since is None:
            return SCAN_SECONDS
        age = min(age, self._clock.monotonic() - self._usable_since)
        if age < PRUNE_SECONDS:
            return PRUNE_SECONDS - age
        for other in self._files.active():
            tracked = self._files.get(other)
            if tracked is not None and not tracked.attempted and other not in self._settings.disabled:
                return REMOVAL_POLL
        parent = await self._parents.get(name)
        if parent is not None and not self._is_own(parent):
            others = parent.server if parent.server != self._settings.server else "another installation"
            text = (
                f"{self._settings.folder / parent.file} is missing, and {others} applied it, not this machine: copy the file "
                f"to it, or delete the objects with --disable {name}"
            )[:LONGEST_MESSAGE]
            wanted = dataclasses.replace(parent, state=KEPT, message=text)
            if wanted != parent:
                self._reports.warn(await self._parents.save(wanted, parent), "AddonKept", text)
            return KEPT_SECONDS
        return await self._remove(name, "its file was removed")

    def _is_own(self, parent: Parent) -> bool:
        """Return whether this machine applied an addon, and was the last one to do so, or nobody did."""
        if not parent.kinds:
            return True
        return parent.addon in self._record and (not self._settings.shared or parent.server == self._settings.server)

    async def _remove(self, name: str, reason: str) -> float | None:
        """Delete an addon's objects, then its parent."""
        self._parsed.pop(name, None)
        parent = await self._parents.get(name)
        if parent is None:
            await self._record.discard(name)
            self._files.forget(name)
            return None
        outcome = await self._application.remove(parent)
        if outcome.pruned:
            log.info("addon %s: %s, %d objects are deleted", name, reason, len(outcome.pruned))
        self._reports.attempted(outcome, parent)
        if outcome.problems:
            return self._back_off(name)
        if outcome.remaining:
            return REMOVAL_POLL
        await self._record.discard(name)
        self._files.forget(name)
        return None

    async def _abandoned(self) -> frozenset[str]:
        """Return the ApplySets of addons that have no file, or are disabled: another addon may take their objects."""
        stored = await self._parents.addons()
        active = set(self._files.active()) - self._settings.disabled
        return frozenset(addon_identifier(name) for name in stored if name not in active)

    def _back_off(self, name: str) -> float:
        delay = self._retry.get(name, FIRST_RETRY)
        self._retry[name] = min(delay * 2, LAST_RETRY)
        return delay


def _parsed(name: str, file: AddonFile, owners: Collection[int]) -> _Parsed:
    data = folder.read(file, owners)
    return _Parsed(file, hashlib.sha256(data).hexdigest(), manifest.parse(data, addon_identifier(name)))
