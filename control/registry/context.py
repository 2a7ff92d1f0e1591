"""The context of a write (user and options), its outcome, and the interface of the admission chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from control.auth.user import AuthzAttributes, UserInfo
from control.event_loop.weight import LARGE, weight
from control.interfaces.admission import Attributes, Operation
from kube.errors import internal
from kube.json_object import Object
from kube.resources import Resource

Change = Callable[[Object | None], Awaitable[Object]]
"""From the object as it is (a copy to keep) to the object as it shall be."""

COMPONENT = "kube-apiserver"
SERVER = UserInfo("system:apiserver", groups=("system:masters", "system:authenticated"))
"""The server itself, for what it writes of its own accord."""


class Admission(Protocol):
    """The chain of plugins."""

    async def admit(self, attributes: Attributes) -> None: ...
    async def validate(self, attributes: Attributes) -> None: ...


@dataclass(slots=True)
class Context:
    """User and options of a write."""

    user: UserInfo
    dry_run: bool = False
    field_manager: str = ""
    options: Object = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    operation: str = "Update"
    """The managed-fields operation: Update or Apply."""
    requested: Resource | None = None
    """The resource as the request's path names it, if objects are stored in another version; None otherwise."""
    changes: list[tuple[str, str]] = field(default_factory=list)
    """Fields that admission plugins have set."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Notes for the audit log."""
    admitted: bool = False
    """Admission was shown the request itself (an eviction); the writes that carry it out are not shown."""
    asked: AuthzAttributes | None = None
    """The request's authorization attributes; None if the server itself writes."""
    size: int = 0
    """Weight of the object that is written, as far as it is known: work on a large one is done outside the event loop."""
    authorize_create: Callable[[], Awaitable[None]] | None = None
    """Raises 403 if the user may not create what an update would; None: only the server itself may."""

    def __post_init__(self) -> None:
        if self.user is SERVER and not self.field_manager:
            self.field_manager = COMPONENT  # upstream: the client that the server has for itself

    def attributes(
        self,
        resource: Resource,
        operation: Operation,
        namespace: str,
        name: str,
        *,
        subresource: str = "",
        obj: Object | None = None,
        old: Object | None = None,
        size: int = 0,
    ) -> Attributes:
        """Return the attributes with which admission is called for this write."""
        return Attributes(
            resource=resource,
            operation=operation,
            user=self.user,
            namespace=namespace,
            name=name,
            subresource=subresource,
            obj=obj,
            old=old,
            options=self.options,
            dry_run=self.dry_run,
            warnings=self.warnings,
            annotations=self.annotations,
            changes=self.changes,
            requested=self.requested,
            asked=self.asked,
            size=size,
        )

    def weigh(self, obj: Object) -> None:
        """Raise `size` to the weight of an object that admission may have made larger than the request."""
        if self.size < LARGE:
            self.size = max(self.size, weight(msgspec.json.encode(obj)))

    async def check_create(self) -> None:
        """Raise 403 if an update may not create what is not there."""
        if self.authorize_create is not None:
            await self.authorize_create()
        elif self.user is not SERVER:
            raise internal("no authorizer provided, unable to authorize a create on update")


class Written(msgspec.Struct):
    """A write's outcome: the object's bytes, whether it was created, and for the journal its name, UID and revision."""

    data: bytes
    created: bool = False
    name: str = ""
    uid: str = ""
    revision: int = 0


class Projection(msgspec.Struct, frozen=True):
    """A subresource whose object is of another kind (Scale): how it is read from the stored object, and written back."""

    subresource: str
    read: Callable[[Object], Object]
    """Changes nothing; called outside the event loop for a large object."""
    write: Callable[[Object, Object], None]
    """Takes the stored object and the subresource's; raises StatusError if they do not fit."""
