"""Puts the answer about one object together."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from kube import resources
from kube.api import core_v1
from kube.client import Client
from kube.object_names import namespace_of
from wherry.errors import UsageError, WherryError
from wherry.why.causes import other_kinds, policy_paths
from wherry.why.causes.finders import FINDERS
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Story, reference
from wherry.why.moments import moments
from wherry.why.owners import template_owner
from wherry.why.reading import Reader
from wherry.why.states import state
from wherry.why.subject import kind_named, served_kind


class NoSuchObject(WherryError):
    """The object does not exist."""


async def _from(diagnosis: Diagnosis, source: str, obj: Any, causes: list[Cause]) -> list[Cause]:
    """Return the causes of a Service for one client: without those that concern only other clients."""
    if not isinstance(obj, core_v1.Service):
        raise UsageError("--from belongs to a Service: wherry why service/NAME --from pod/NAME")
    space, _, named = source.rpartition(":")
    kind, _, name = named.partition("/")
    if kind not in ("pod", "pods", "po") or not name or "/" in name:
        raise UsageError(f"--from {source}: name a pod as pod/NAME, or NAMESPACE:pod/NAME")
    space = space or namespace_of(obj)
    client = await diagnosis.reader.get(core_v1.Pod, name, space)
    if client is None:
        unknown = diagnosis.reader.unknown
        raise WherryError(unknown[-1] if unknown else f"there is no pod {name} in namespace {space}")
    stopped = await policy_paths.path(diagnosis, client, obj)
    return [*stopped, *(each for each in causes if not (each.about is not None and each.about.kind == "NetworkPolicy"))]


async def _other_version(reader: Reader, struct: type[Any]) -> type[Any] | None:
    """Return a built-in kind in the version that the server has, if it does not have the one that is known here."""
    resource = resources.of(struct)
    if struct not in reader.unserved or not resource.group:
        return None
    try:
        return await served_kind(reader.client, f"{resource.plural}.{resource.group}")
    except WherryError:
        return None


async def compose(
    client: Client,
    kind: str,
    name: str,
    namespace: str,
    now: datetime,
    since: timedelta | None = None,
    source: str = "",
) -> Story:
    """Return the story of an object, with what happened in the time `since`. Raises WherryError if it cannot be read.

    source: the pod whose connections to a Service are asked about, as [NAMESPACE:]pod/NAME.
    """
    struct = await kind_named(client, kind)
    resource = resources.of(struct)
    reader = Reader(client, now)
    obj: Any = await reader.get(struct, name, namespace if resource.namespaced else "")
    if obj is None and (other := await _other_version(reader, struct)) is not None:
        obj = await reader.get(other, name, namespace if resource.namespaced else "")
    if obj is None:
        where = f" in namespace {namespace}" if resource.namespaced else ""
        if reader.unknown:
            raise WherryError(reader.unknown[0])
        raise NoSuchObject(f"there is no {resource.singular} {name}{where}")
    diagnosis = Diagnosis(reader, FINDERS, other_kinds.causes)
    causes = list(await diagnosis.causes(obj))
    if source:
        causes = await _from(diagnosis, source, obj, causes)
    happened = await moments(reader, obj)
    if since is not None:
        happened = [moment for moment in happened if moment.time >= now - since]
    owner = await template_owner(reader, obj)
    of = f", of {owner}" if owner != reference(obj) else ""
    return Story(reference(obj), f"{state(obj, now)}{of}", happened, list(reversed(causes)), reader.unknown)
