"""What a write carries besides the object, what comes out of it, and what it may see of the server meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from control.admission.plugin import Attributes
from control.auth.user import AuthzAttributes, UserInfo
from control.registry.deletion import DeleteOptions
from control.storage import codec
from control.storage.entry import Entry
from control.storage.store import KeyNotFound, Store
from kube.errors import StatusError, internal
from kube.resources import Resource, by_kind, by_path

if TYPE_CHECKING:
    from control.registry.registry import Registry

Object = dict[str, Any]
Change = Callable[[Object | None], Awaitable[Object]]
"""From the object as it is (a copy to keep) to the object as it shall be."""

SERVER = UserInfo("system:apiserver", groups=("system:masters", "system:authenticated"))
"""The server itself, for what it writes of its own accord."""


class Admission(Protocol):
    """The chain of plugins."""

    async def admit(self, attributes: Attributes) -> None: ...
    async def validate(self, attributes: Attributes) -> None: ...


@dataclass(slots=True)
class Context:
    """Who writes and how: what a request says besides the object."""

    user: UserInfo
    dry_run: bool = False
    field_manager: str = ""
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    operation: str = "Update"
    """The managed-fields operation: Update or Apply."""
    requested: Resource | None = None
    """The version that the request names, where it is not the one on the path."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Notes for the audit log."""
    admitted: bool = False
    """Admission was shown the request itself (an eviction); the writes that carry it out are not shown."""
    asked: AuthzAttributes | None = None
    """The request's authorization attributes; None where the server itself writes."""
    size: int = 0
    """Weight of the object that is written, as far as it is known: work on a large one is done beside the event loop."""
    authorize_create: Callable[[], Awaitable[None]] | None = None
    """Raises 403 where the user may not create what an update would; None: only the server itself may."""

    async def check_create(self) -> None:
        """Raise 403 where an update may not create what is not there."""
        if self.authorize_create is not None:
            await self.authorize_create()
        elif self.user is not SERVER:
            raise internal("no authorizer provided, unable to authorize a create on update")


class Allocation:
    """What a strategy sees of the request and of other objects while it hands out addresses and such."""

    def __init__(self, registry: Registry, context: Context) -> None:
        self._registry, self._context = registry, context

    @property
    def user(self) -> UserInfo:
        return self._context.user

    @property
    def dry_run(self) -> bool:
        return self._context.dry_run

    @property
    def store(self) -> Store:
        return self._registry.store

    @property
    def now(self) -> datetime:
        return self._registry.clock.now()

    async def current(self) -> None:
        await self._registry.cache.wait_current()

    def find(self, group: str, version: str, plural: str, namespace: str, name: str) -> Object | None:
        resource = by_path(group, version, plural)
        assert resource is not None
        entry = self._registry.peek(resource, namespace, name)
        return None if entry is None else entry.obj

    def entries(self, group: str, version: str, plural: str) -> Sequence[Entry]:
        resource = by_path(group, version, plural)
        assert resource is not None
        return self._registry.cached(resource).list().entries

    def objects(self, group: str, version: str, plural: str) -> Iterable[Object]:
        return [entry.obj for entry in self.entries(group, version, plural)]

    async def create(self, obj: Object) -> Object:
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        namespace = obj.get("metadata", {}).get("namespace", "")
        return codec.decode((await self._registry.create(Context(SERVER), resource, namespace, obj)).data)

    async def delete(self, group: str, version: str, plural: str, namespace: str, name: str) -> None:
        resource = by_path(group, version, plural)
        assert resource is not None
        with contextlib.suppress(KeyNotFound, StatusError):
            await self._registry.delete(Context(SERVER), resource, namespace, name, DeleteOptions(grace_period=0))


@dataclass(slots=True)
class Written:
    """A write's outcome: the object's bytes, and whether it came to be."""

    data: bytes
    created: bool = False


@dataclass(frozen=True, slots=True)
class Projection:
    """A subresource whose object is of another kind (Scale): how it is read from the stored object, and written back."""

    subresource: str
    read: Callable[[Object], Object]
    write: Callable[[Object, Object], None]
    """Takes the stored object and the subresource's; raises StatusError where they do not fit."""
