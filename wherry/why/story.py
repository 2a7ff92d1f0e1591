"""Puts the answer about one object together."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from kube.client import Client
from wherry.errors import WherryError
from wherry.why.causes import other_kinds
from wherry.why.causes.finders import FINDERS
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Story, reference
from wherry.why.moments import moments
from wherry.why.owners import template_owner
from wherry.why.reading import Reader
from wherry.why.states import state
from wherry.why.subject import kind_named

DEFAULT_NAMESPACE = "default"


async def tell(
    client: Client, kind: str, name: str, namespace: str, now: datetime, since: timedelta | None = None
) -> Story:
    """Return the story of an object, with what happened in the time `since`. Raises WherryError if it cannot be read."""
    from kube import resources

    struct = await kind_named(client, kind)
    resource = resources.of(struct)
    reader = Reader(client, now)
    obj: Any = await reader.get(struct, name, namespace if resource.namespaced else "")
    if obj is None:
        where = f" in namespace {namespace}" if resource.namespaced else ""
        raise WherryError(reader.unknown[0] if reader.unknown else f"there is no {resource.singular} {name}{where}")
    causes = await Diagnosis(reader, FINDERS, other_kinds.causes).causes(obj)
    happened = await moments(reader, obj)
    if since is not None:
        happened = [moment for moment in happened if moment.time >= now - since]
    owner = await template_owner(reader, obj)
    of = f", of {owner}" if owner != reference(obj) else ""
    return Story(reference(obj), f"{state(obj, now)}{of}", happened, list(reversed(causes)), reader.unknown)
