"""Controller of definitions in the server: assigns names, establishes versions, and deletes the objects of a deleted one.

One loop follows the watch cache. A definition that comes or changes gets its conditions at once; where a name becomes free,
those of its group that wait for it are checked again. One that is marked for deletion has its objects deleted first and loses
upstream's finalizer when none is left. Every server does this: writes are compare-and-swap, so the second finds nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

import msgspec

from control.custom.approval import approval_condition
from control.custom.definitions import DEFINITIONS, Definitions, holds
from control.event_loop import offload
from control.event_loop.pacing import TimeSlice
from control.registry import deletion, updating
from control.registry.apiextensions import naming
from control.registry.apiextensions.cleanup_finalizer import FINALIZER
from control.registry.apiextensions.definition_index import DefinitionIndex
from control.registry.apiextensions.stored import readable, servable
from control.registry.context import SERVER, Context
from control.registry.deletion_plan import DeleteOptions
from control.registry.registry import Registry
from control.registry.served import ServedResource
from control.storage.entry import Entry
from control.storage.list_watch import list_and_watch
from kube.errors import StatusError
from kube.json_object import Object
from kube.step_limit import Limit, limited
from kube.step_shares import Shares

log = logging.getLogger(__name__)
MANAGER = "kube-apiserver"
RETRY = 0.5
"""Seconds between looks at objects that hold back their definition's deletion by finalizers of their own."""
PAUSES = 4
"""The pause between two looks is so many times as long as a look at all of the objects, RETRY_FAILED at most."""
RETRY_FAILED = 5.0
STEP_SECONDS, SHARE, PAUSE = 3.0, 0.5, 60.0
_shares = Shares("definitions", STEP_SECONDS, SHARE, PAUSE)


class DefinitionController:
    """Reconciles all definitions."""

    def __init__(self, registry: Registry, definitions: Definitions) -> None:
        self.registry, self.definitions = registry, definitions
        self._index = DefinitionIndex(registry.cached(DEFINITIONS))
        self._cleaning: dict[str, asyncio.Task[None]] = {}
        self._unserved: dict[str, tuple[int, ServedResource | None]] = {}
        """Stored versions that are not served, of definitions that are being deleted, with the revisions of those."""

    async def run(self) -> None:
        """Work until cancelled."""
        cached = self.registry.cached(DEFINITIONS)
        try:
            async with aclosing(list_and_watch(self.registry.cache, cached)) as updates:
                async for update in updates:
                    time_slice = TimeSlice()
                    for watch_event in update.watch_events:
                        await time_slice.step(len(watch_event.entry.data))
                        if update.is_list:
                            await self.look(watch_event.entry.obj["metadata"]["name"])
                        else:
                            await self._changed(watch_event.type, watch_event.entry.obj)
        finally:
            for task in self._cleaning.values():
                task.cancel()
            await asyncio.gather(*self._cleaning.values(), return_exceptions=True)

    async def _changed(self, kind: str, definition: Object) -> None:
        if kind == "DELETED":
            # Asking for it makes the server forget what it served.
            plural, _, group = definition["metadata"]["name"].partition(".")
            self.definitions.find(group, "", plural)
            await self._index.refresh()
            for other in self._index.of_group(group):
                if not other.holds("NamesAccepted"):
                    await self.look(other.name)
        else:
            await self.look(definition["metadata"]["name"])

    async def look(self, name: str) -> None:
        """Bring one definition's status up to date, or its deletion on its way; one that cannot be read is left alone."""
        try:
            await limited(self._reconcile_definition(name), Limit(_shares, name))
        except Exception:
            log.exception("reconciling definition %s failed", name)

    async def _reconcile_definition(self, name: str) -> None:
        entry = self.registry.cached(DEFINITIONS).get(DEFINITIONS.key("", name))
        if entry is None:
            return
        definition = entry.obj
        if not readable(definition):
            log.warning("%s is stored among the definitions and is none; it is left out", name)
            if definition["metadata"].get("deletionTimestamp"):  # marked by a server that waited for its objects
                await deletion.delete(self.registry, Context(SERVER), DEFINITIONS, "", name, DeleteOptions())
            return
        if definition["metadata"].get("deletionTimestamp"):
            if FINALIZER in (definition["metadata"].get("finalizers") or ()) and name not in self._cleaning:
                task = asyncio.create_task(self._clean(name), name=f"deleting all {name}")
                self._cleaning[name] = task
                task.add_done_callback(lambda _: self._cleaned(name))
            return
        await self._index.refresh()
        now = self.registry.clock.now()
        status = naming.plan(definition, *self._index.taken(definition["spec"]["group"], name), now)
        approved = approval_condition(definition)
        if approved is not None:
            naming.set_condition(status, approved, now)
        if status != definition.get("status"):
            await self._write(name, definition, status)

    async def _write(self, name: str, seen: Object, status: Object) -> None:
        async def change(old: Object | None) -> Object:
            assert old is not None
            old["metadata"]["resourceVersion"] = seen["metadata"]["resourceVersion"]
            return {**old, "status": status}

        try:
            await updating.update(
                self.registry,
                Context(SERVER, field_manager=MANAGER),
                DEFINITIONS,
                "",
                name,
                change,
                subresource="status",
            )
        except StatusError as error:
            if not (error.conflict or error.not_found):
                log.error("the status of definition %s cannot be written: %s", name, error)

    def _cleaned(self, name: str) -> None:
        self._cleaning.pop(name, None)
        self._unserved.pop(name, None)

    # -- deletion -------------------------------------------------------------------------------------------------
    async def _clean(self, name: str) -> None:
        """Delete all objects of a definition, then let it go; what fails is retried."""
        while True:
            try:
                message = "CustomResource deletion is in progress"
                await self._condition(name, "True", "InstanceDeletionInProgress", message)
                began, marked = self.registry.clock.monotonic(), dict[str, int]()
                while (left := await limited(self._delete_objects(name, marked), Limit(_shares, name))) > 0:
                    log.info("definition %s waits for %d objects", name, left)
                    taken = self.registry.clock.monotonic() - began
                    await self.registry.clock.sleep(min(max(RETRY, PAUSES * taken), RETRY_FAILED))
                    began = self.registry.clock.monotonic()
                await self._condition(name, "False", "InstanceDeletionCompleted", "removed all instances", done=True)
                return
            except Exception as error:
                if isinstance(error, StatusError) and error.not_found:
                    return
                log.error("the objects of definition %s cannot be deleted: %r", name, error)
            await self.registry.clock.sleep(RETRY_FAILED)

    async def _delete_objects(self, name: str, marked: dict[str, int]) -> int:
        """Request all objects' deletion and return how many are still there.

        `marked` are the revisions of those that were seen to be marked for deletion: they are not decoded again.
        """
        entry = self.registry.cached(DEFINITIONS).get(DEFINITIONS.key("", name))
        if entry is None:
            return 0
        resource = await self._resource(name, entry)
        if resource is None:
            return 0
        await self.definitions.ready(resource)
        await self.registry.cache.wait_current()
        time_slice = TimeSlice()
        for found in self.registry.cached(resource).list().entries:
            known = marked.get(found.key) == found.revision
            await time_slice.step(0 if known else len(found.data))
            if known:
                continue
            metadata = found.parts()["metadata"]
            if metadata.get("deletionTimestamp"):
                marked[found.key] = found.revision
                continue
            try:
                namespace = metadata.get("namespace", "")
                await deletion.delete(
                    self.registry,
                    Context(SERVER, field_manager=MANAGER),
                    resource,
                    namespace,
                    metadata["name"],
                    DeleteOptions(propagation="Background"),
                )
            except StatusError as error:
                if not error.not_found:
                    raise
        return len(self.registry.cached(resource))

    async def _resource(self, name: str, entry: Entry) -> ServedResource | None:
        """Return the stored version, served or not: to delete an object it need not be converted.

        None for a definition whose objects would be those of a built-in resource.
        """
        definition = entry.obj
        if not servable(definition):
            return None
        spec = definition["spec"]
        storage = next(v["name"] for v in spec["versions"] if v.get("storage"))
        found = await self.definitions.find_prepared(spec["group"], storage, spec["names"]["plural"])
        if found is not None or not holds(definition, "Established"):
            return found
        known = self._unserved.get(name)
        if known is not None and known[0] == entry.revision:
            return known[1]
        from control.custom.building import build

        served = {**definition, "spec": {**spec, "versions": [{**v, "served": True} for v in spec["versions"]]}}
        size = len(msgspec.json.encode(spec))
        built = await offload.run(SERVER.name, size, build, served, self.definitions.webhooks)
        self._unserved[name] = entry.revision, built.get(storage)
        return built.get(storage)

    async def _condition(self, name: str, status: str, reason: str, message: str, *, done: bool = False) -> None:
        now = self.registry.clock.now()

        async def change(old: Object | None) -> Object:
            assert old is not None
            new = {"type": "Terminating", "status": status, "reason": reason, "message": message}
            naming.set_condition(old.setdefault("status", {}), new, now)
            return old

        async def release(old: Object | None) -> Object:
            assert old is not None
            finalizers = [f for f in old["metadata"].get("finalizers") or () if f != FINALIZER]
            old["metadata"]["finalizers"] = finalizers
            return old

        await updating.update(
            self.registry, Context(SERVER, field_manager=MANAGER), DEFINITIONS, "", name, change, subresource="status"
        )
        if done:
            await updating.update(self.registry, Context(SERVER, field_manager=MANAGER), DEFINITIONS, "", name, release)
