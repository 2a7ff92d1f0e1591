"""Creating a large object: this process hands bytes on and another one (control/server/helper) works on what is in them.

The steps are those of creation.py in their order. Between them the object is bytes; it is decoded here only where an admission
plugin looks at it. What the server hands out (addresses) needs other objects, so kinds that have such are created by
creation.py, and so are custom ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from control.auth.user import UserInfo
from control.event_loop import offload
from control.event_loop.weight import weight
from control.interfaces.admission import Attributes
from control.registry import creation
from control.registry.context import Context, Written
from control.registry.conversion import conversion
from control.registry.registry import Registry
from control.registry.storing import encode, limited
from control.registry.strategy import Strategy
from control.registry.strategy_context import Settings
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource

Begun = tuple[bytes, str, str, bool, list[str]]
"""The object, its name, its UID, whether the name was generated, warnings."""
Finished = tuple[bytes, bytes, str, list[str]]
"""The object as it is stored, as a dry run shows it, its name as admission left it, warnings."""


class EncodedAttributes(Attributes):
    """A write whose object is given as bytes and decoded when a plugin requests it."""

    __slots__ = ("_data", "_decoded")

    _data: bytes
    _decoded: Object | None

    def hold(self, data: bytes) -> None:
        """Take these bytes for the object."""
        self._data, self._decoded = data, None
        self.size = max(self.size, weight(data))

    @property
    def data(self) -> bytes:
        """The object as bytes, with what plugins changed."""
        return self._data if self._decoded is None else msgspec.json.encode(self._decoded)

    @property
    def obj(self) -> Object | None:
        if self._decoded is None and self._data:
            self._decoded = msgspec.json.decode(self._data)
        return self._decoded

    @obj.setter
    def obj(self, value: Object | None) -> None:
        self._data, self._decoded = b"", value


def alone(strategy: Strategy) -> bool:
    """Return whether objects of a kind can be checked without anything but the object itself."""
    resource = strategy.resource
    return conversion(resource) is None and strategy.stored_as_served


def creates(strategy: Strategy) -> bool:
    """Return whether objects of a kind can be created so, too."""
    return alone(strategy) and type(strategy).allocate is Strategy.allocate


def named(resource: Resource, settings: Settings) -> list[Any]:
    """Return the identifier of a strategy for the helper process."""
    ports = settings.node_ports
    where = [resource.group, resource.version, resource.plural]
    return [
        *where,
        list(settings.service_ranges),
        ports.start,
        ports.stop,
        settings.shared_store,
        sorted(settings.gates),
        settings.load_balancer_ports,
        settings.api_port,
    ]


# -- in the other process, or in the thread where there is none ---------------------------------------------------------
def begin(strategy: Strategy, namespace: str, obj: Object, manager: str, now: datetime, warnings: list[str]) -> Begun:
    """Fill in what comes before admission; raises StatusError.

    Its type and its managed fields can make an object ten times as large as it was sent. One that cannot be stored is refused
    before either costs more, and before admission, which decodes it on the event loop.
    """
    base = creation.begin(strategy.resource, namespace, obj)
    if obj["metadata"].get("resourceVersion"):
        raise creation.revision_set()
    limited(msgspec.json.encode(obj))
    creation.fill(Context(UserInfo(""), field_manager=manager), strategy, obj, base, now)
    meta = obj["metadata"]
    return limited(msgspec.json.encode(obj)), meta.get("name", ""), meta["uid"], bool(base), warnings


def finish(strategy: Strategy, namespace: str, data: bytes, dry_run: bool) -> Finished:  # noqa: FBT001 - called with a list
    """Prepare and validate an object as admission left it; raises StatusError."""
    obj, context = msgspec.json.decode(data), Context(UserInfo(""))
    creation.prepare(context, strategy, namespace, obj)
    creation.validate(context, strategy, obj)
    return encode(obj), creation.without_revision(obj) if dry_run else b"", obj["metadata"]["name"], context.warnings


# -- in this process ----------------------------------------------------------------------------------------------------
async def create(
    registry: Registry,
    context: Context,
    resource: Resource,
    namespace: str,
    decoded: Callable[[list[Any]], Awaitable[Begun]],
) -> Written:
    """Store a new object; `decoded` starts the helper process. Raises 409 AlreadyExists, 422, or errors of admission."""
    name = named(resource, registry.settings)
    for attempt in range(creation.GENERATE_ATTEMPTS):
        data, given, uid, generated, warnings = await decoded(name)
        if attempt == 0:
            context.warnings += warnings
        try:
            return await _create_once(registry, context, resource, namespace, data, given, uid)
        except StatusError as error:
            if not (generated and error.already_exists) or attempt == creation.GENERATE_ATTEMPTS - 1:
                raise
    raise AssertionError


async def _create_once(
    registry: Registry, context: Context, resource: Resource, namespace: str, data: bytes, name: str, uid: str
) -> Written:
    attributes = EncodedAttributes(
        resource=resource,
        operation="CREATE",
        user=context.user,
        namespace=namespace,
        name=name,
        options=context.options,
        dry_run=context.dry_run,
        warnings=context.warnings,
        annotations=context.annotations,
        changes=context.changes,
        asked=context.asked,
    )
    attributes.hold(data)
    await registry.admission.admit(attributes)
    known, strategy = named(resource, registry.settings), registry.strategy(resource)
    left = namespace, attributes.data, context.dry_run
    value, shown, name, warnings = await offload.by_helper(
        context.user.name, "finish_create", known, *left, instead=partial(finish, strategy, *left)
    )
    context.warnings += warnings
    attributes.hold(value)
    await registry.admission.validate(attributes)
    if context.dry_run:
        return await creation.store_nothing(registry, resource, namespace, name, shown)
    return await creation.store_new(registry, strategy, namespace, name, uid, value, value)
