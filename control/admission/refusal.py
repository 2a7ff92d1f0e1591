"""Error of a plugin that denies a request: 403 with the object's name, even if the name is still to be generated."""

from __future__ import annotations

from collections.abc import Sequence

from control.interfaces.admission import Attributes
from kube.errors import StatusError, forbidden


def refuse(attributes: Attributes, why: str) -> StatusError:
    """Return the error for an object that a plugin does not let in."""
    return forbidden(attributes.resource.group, attributes.resource.plural, shown_name(attributes), why)


def shown_name(attributes: Attributes) -> str:
    if attributes.name:
        return attributes.name
    metadata = (attributes.obj or {}).get("metadata", {})
    return metadata.get("name") or metadata.get("generateName") or "Unknown"


def aggregate(messages: Sequence[str]) -> str:
    """Join several messages as upstream's error lists print: one bare, more in brackets, each once."""
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else "[" + ", ".join(distinct) + "]"
