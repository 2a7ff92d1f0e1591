"""Controller of FlowSchemas and priority levels: configures fairness with those that are stored.

Each change makes a new configuration. What is mandatory is written again where it was changed or deleted, what is
suggested where it is missing at the start; a FlowSchema's status says whether the level that it names exists.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from control import start_steps
from control.fairness import defaults
from control.fairness.fairness import Fairness
from control.interfaces.requestinfo import RequestInfo
from control.registry import controller_support
from control.registry.registry import Registry
from control.storage.store import StoreError
from kube import cancellation
from kube.clock import format_time
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource, by_path

log = logging.getLogger(__name__)
GROUP = "flowcontrol.apiserver.k8s.io"


def _resource(plural: str) -> Resource:
    found = by_path(GROUP, "v1", plural)
    assert found is not None
    return found


SCHEMAS, LEVELS = _resource("flowschemas"), _resource("prioritylevelconfigurations")


def list_size(registry: Registry, info: RequestInfo) -> int:
    """Return how many objects a list has to go through."""
    if info.name:
        return 1  # a field selector names the one that is meant
    resource = by_path(info.group, info.version, info.resource)
    prefix = resource.storage_prefix if resource is not None else f"/registry/{info.group}/{info.resource}/"
    cached = registry.cached_at(prefix)
    if cached is None:
        return 1
    return cached.count(f"{prefix}{info.namespace}/" if info.namespace else prefix)


class FlowSchemaController:
    """Keeps `fairness` current with what is stored."""

    def __init__(self, registry: Registry, fairness: Fairness, done: Callable[..., None] = lambda *steps: None) -> None:
        self.registry, self.fairness, self._done = registry, fairness, done
        self._changed = asyncio.Event()
        self._suggested = True
        """True if what is suggested is still to be written: only once, what people delete then stays deleted."""

    async def run(self) -> None:
        """Write what is missing, then follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in (SCHEMAS, LEVELS):
                work = functools.partial(
                    controller_support.follow, self.registry, resource, lambda obj: self._changed.set()
                )
                cancellation.start(group, work, f"fairness-follows-{resource.plural}")
            self._changed.set()
            cancellation.start(group, self._configure, "fairness-configures")

    async def _configure(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            suggested = self._suggested
            schemas, levels = self._stored(SCHEMAS), self._stored(LEVELS)
            if suggested:  # what is about to be written holds already
                schemas, levels = _with(schemas, defaults.flow_schemas()), _with(levels, defaults.priority_levels())
            self.fairness.configure(schemas, levels)
            self._done(start_steps.FAIRNESS_CONSUMER, start_steps.FAIRNESS_FILTER)
            try:
                schemas, levels = self._stored(SCHEMAS), self._stored(LEVELS)
                await self._ensure(LEVELS, levels, defaults.priority_levels(), suggested=suggested)
                await self._ensure(SCHEMAS, schemas, defaults.flow_schemas(), suggested=suggested)
                await self._tell(schemas)
                if suggested:
                    self._suggested = False
                    self._done(start_steps.FAIRNESS_PRODUCER)
                    self._changed.set()
            except (StatusError, StoreError) as error:
                log.warning("updating flow control failed and will be retried: %s", error)
                await self.registry.clock.sleep(1)
                self._changed.set()

    def _stored(self, resource: Resource) -> list[Object]:
        return list(controller_support.stored(self.registry, resource).values())

    async def _ensure(
        self, resource: Resource, present: list[Object], wanted: list[Object], *, suggested: bool
    ) -> None:
        have = {obj["metadata"]["name"]: obj for obj in present}
        writes = []
        for obj in wanted:
            name = obj["metadata"]["name"]
            found = have.get(name)
            if not suggested and name not in defaults.MANDATORY:
                continue
            if found is None:
                writes.append(controller_support.create(self.registry, resource, obj))
            elif found.get("spec") != obj["spec"] and _kept(found):
                writes.append(controller_support.write(self.registry, resource, name, {"spec": obj["spec"]}))
        await asyncio.gather(*writes)  # one commit for all of them: the start waits for it

    async def _tell(self, schemas: list[Object]) -> None:
        """Write into each FlowSchema's status whether its level exists."""
        writes = []
        for schema in schemas:
            dangling = self.fairness.dangling(schema)
            conditions = (schema.get("status") or {}).get("conditions") or []
            status = next((c.get("status") for c in conditions if c.get("type") == "Dangling"), "")
            if status == ("True" if dangling else "False"):
                continue
            condition = self._condition(schema, dangling=dangling)
            writes.append(
                controller_support.set_condition(self.registry, SCHEMAS, schema["metadata"]["name"], condition)
            )
        await asyncio.gather(*writes)

    def _condition(self, schema: Object, *, dangling: bool) -> Object:
        level = schema["spec"]["priorityLevelConfiguration"]["name"]
        found = "but there is no such object" if dangling else "and it exists"
        return {
            "type": "Dangling",
            "status": "True" if dangling else "False",
            "lastTransitionTime": format_time(self.registry.clock.now()),
            "reason": "NotFound" if dangling else "Found",
            "message": f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" {found}',
        }


def _with(stored: list[Object], wanted: list[Object]) -> list[Object]:
    names = {obj["metadata"]["name"] for obj in stored}
    return stored + [obj for obj in wanted if obj["metadata"]["name"] not in names]


def _kept(obj: Object) -> bool:
    meta = obj["metadata"]
    return meta["name"] in defaults.MANDATORY or (meta.get("annotations") or {}).get(defaults.AUTOUPDATE) == "true"
