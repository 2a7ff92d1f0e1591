"""The API's answer about decisions on many objects: GET /wherry/v1/journal without an object."""

from __future__ import annotations

import msgspec


class Listed(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An entry with its object, for lists over many objects: `resource`, the plural name, or `kind`, whichever is known."""

    time: float
    actor: str
    text: str
    name: str
    namespace: str = ""
    group: str = ""
    kind: str = ""
    resource: str = ""
    uid: str = ""
    revision: int = 0
    trace: str = ""


class List(msgspec.Struct, rename="camel"):
    """The API's answer about many objects: the newest entries of a time, the oldest first; `more` if there are others."""

    entries: list[Listed]
    complete_since: float
    more: bool
