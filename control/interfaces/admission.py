"""The interface of an admission plugin: the attributes of a request, and the phases.

The chain calls `admit` (may change `obj` in place) of every plugin in order, then the strategy's defaults and validation
run, then `validate` (may only refuse) of every plugin. A refusal is a `StatusError`, usually
`kube.errors.forbidden(...)`. Deletes carry no `obj`; updates and deletes carry `old`.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from control.auth.user import AuthzAttributes, UserInfo
from kube.json_object import Object
from kube.resources import Resource

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


MOST_CHANGES = 20
"""Fields set by plugins that are recorded of a write."""
LONGEST_PATH = 200
"""Characters of a field's path; webhooks choose theirs."""


class Reinvocation(msgspec.Struct):
    """Results of mutating webhooks in the first pass through the chain, and the webhooks to call in the second."""

    second: bool = False
    wanted: bool = False
    """A webhook changed the object: go through the chain once more."""
    asked: set[str] = msgspec.field(default_factory=set)
    """Webhooks that were called and may be called again."""
    required: set[str] = msgspec.field(default_factory=set)
    """Those of them after which the object changed."""
    left_by_webhooks: Object | None = None

    def require_those_asked(self) -> None:
        """The object changed: plugins called before are called again."""
        self.required |= self.asked
        self.asked.clear()


@dataclass(slots=True, kw_only=True)
class Attributes:
    """One write (or connect) on its way through admission. `obj` is a JSON-shaped dict."""

    resource: Resource
    operation: Operation
    user: UserInfo
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    obj: Object | None = None
    old: Object | None = None
    options: Object = field(default_factory=dict)
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    """Notes for the audit log."""
    changes: list[tuple[str, str]] = field(default_factory=list)
    """Plugins and the paths of the fields that they have set, for the journal."""
    requested: Resource | None = None
    """The version that the request names, where it is not the stored one."""
    asked: AuthzAttributes | None = None
    """The request's authorization attributes; None if the server itself writes."""
    reinvocation: Reinvocation = field(default_factory=Reinvocation)
    size: int = 0
    """Weight of the larger of the objects, as far as it is known (`control.admission.object_work`)."""

    def changed(self, plugin: str, *paths: str) -> None:
        """Record that a plugin has set fields."""
        room = MOST_CHANGES - len(self.changes)
        if room > 0:
            self.changes.extend((plugin, path[:LONGEST_PATH]) for path in paths[:room])

    def concern(self, targets: str | Container[str], *operations: Operation) -> bool:
        """Return whether one of the operations is done to an object of a target itself, not through a subresource."""
        target = self.resource.target
        hit = target == targets if isinstance(targets, str) else target in targets
        return hit and self.operation in operations and not self.subresource


class Plugin:
    """Base of all plugins; `handles` keeps a plugin out of requests that cannot concern it."""

    name = ""
    targets: Collection[str] | None = None
    """Resources that the plugin concerns itself with; None for any. For others `handles` is not even called."""

    def handles(self, attributes: Attributes) -> bool:
        return True

    async def admit(self, attributes: Attributes) -> None:
        """Change the object or refuse it."""

    async def validate(self, attributes: Attributes) -> None:
        """Refuse the object or let it pass."""

    async def close(self) -> None:
        """Release what the plugin holds open."""
