"""The answer of `wherry why` to a question about one object."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import msgspec

from kube import resources
from kube.object_names import name_of, namespace_of

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9]*")


class Reference(msgspec.Struct, frozen=True):
    """Identifies an object; `namespace` is "" for what has none."""

    kind: str
    name: str
    namespace: str = ""
    group: str = ""
    """API group of a kind that the server does not have built in: another group may have a kind of the same name."""

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"

    @property
    def target(self) -> str:
        """The argument that names the object for kubectl. References of objects have any text as a kind, also options."""
        kind = self.kind.lower() if _KIND.fullmatch(self.kind) else "KIND"
        return f"{kind}.{self.group}/{self.name}" if self.group else f"{kind}/{self.name}"


class Moment(msgspec.Struct, frozen=True):
    """Something that happened at a time: `actor` did what `text` says, `count` times until then."""

    time: datetime
    text: str
    actor: str = ""
    count: int = 1
    trace: str = ""
    """ID of the OpenTelemetry trace, "" if it is not known."""


class Cause(msgspec.Struct, frozen=True):
    """A reason why an object is not as it should be.

    `text` is one sentence without a full stop. `fix` is the next command to run, or "" if there is none: `waits` is true if it
    ends without anybody's doing.
    """

    text: str
    fix: str = ""
    about: Reference | None = None
    waits: bool = False
    partial: bool = False
    """True if it concerns some clients only, perhaps on purpose: for others all is well."""


class Story(msgspec.Struct, frozen=True):
    """All that is known about an object: its state in one sentence, what happened, and causes, the most important last."""

    subject: Reference
    state: str
    moments: list[Moment]
    causes: list[Cause]
    unknown: list[str]
    """Facts that are not known, and why."""


def reference(obj: Any) -> Reference:
    """Return the reference of an object."""
    kind, api_version = obj.kind or type(obj).__name__, obj.api_version or ""
    builtin = "/" not in api_version or resources.by_kind(api_version, kind) is not None
    group = "" if builtin else api_version.partition("/")[0]
    return Reference(kind, name_of(obj), namespace_of(obj), group)
