"""ControllerRevisions: the templates that a DaemonSet or StatefulSet has had, for `kubectl rollout history` and `undo`.

A revision holds the template as a patch that replaces it. The current template is one of the revisions, or becomes a new one;
one that returns gets the highest number again. Upstream: pkg/controller/history and daemon/update.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from control.controllers.deployment.template import fnv32a, safe_encode
from control.controllers.ownership import controller_reference
from kube.api import apps_v1, core_v1, meta_v1
from kube.client import Client
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.object_names import name_of, namespace_of

HASH_LABEL = "controller-revision-hash"
Revision = apps_v1.ControllerRevision
_encoder = msgspec.json.Encoder(order="sorted")


def data_of(template: core_v1.PodTemplateSpec) -> dict[str, Any]:
    """Return a template as the patch that a revision holds.

    Its keys are sorted: `kubectl rollout undo` compares the bytes with its own to see that there is nothing to undo.
    """
    return {"spec": {"template": {"$patch": "replace", **msgspec.to_builtins(template, order="sorted")}}}


async def hash_of(data: dict[str, Any], collision_count: int | None) -> str:
    text = _encoder.encode(data)
    if collision_count is not None:
        text += str(collision_count).encode()
    return safe_encode(str(await fnv32a(text)))


def template_of(revision: Revision) -> core_v1.PodTemplateSpec:
    """Return the template that a revision holds."""
    shape = dict(revision.data["spec"]["template"])
    shape.pop("$patch", None)
    return msgspec.convert(shape, core_v1.PodTemplateSpec)


@dataclass(slots=True)
class History:
    """The revision of the current template, and all others, oldest first."""

    current: Revision
    old: list[Revision]
    collision_count: int | None


def surplus(history: History, limit: int | None, in_use: set[str]) -> list[Revision]:
    """Return the revisions beyond the limit that no pod is of; `in_use` are names and hashes."""
    idle = [r for r in history.old if not {r.metadata.name, r.metadata.labels.get(HASH_LABEL)} & in_use]
    return idle[: max(0, len(idle) - (10 if limit is None else limit))]


async def sync(
    client: Client,
    owner: Any,
    template: core_v1.PodTemplateSpec,
    known: Sequence[Revision],
    collision_count: int | None,
) -> History:
    """Find or make the revision of the current template; raises StatusError 409 after counting a collision."""
    data = data_of(template)
    ordered = sorted(known, key=lambda r: (r.revision, r.metadata.creation_timestamp or "", r.metadata.name or ""))
    same = [r for r in ordered if r.data == data]
    highest = max((r.revision for r in ordered), default=0)
    if same:
        current = same[-1]
        old = [r for r in ordered if r is not current]
        if current.revision < highest:
            current = await client.update(msgspec.structs.replace(current, revision=highest + 1))
        return History(current, old, collision_count)
    while True:
        digest = await hash_of(data, collision_count)
        desired = Revision(
            metadata=meta_v1.ObjectMeta(
                name=f"{name_of(owner)}-{digest}",
                namespace=namespace_of(owner),
                labels={**template.metadata.labels, HASH_LABEL: digest},
                annotations=dict(owner.metadata.annotations),
                owner_references=[controller_reference(owner)],
            ),
            data=data,
            revision=highest + 1,
        )
        try:
            return History(await client.create(desired), ordered, collision_count)
        except StatusError as error:
            if not error.already_exists:
                raise
            found = await client.get(Revision, name_of(desired), namespace_of(desired))
            if found.data == data and any(ref.uid == owner.metadata.uid for ref in found.metadata.owner_references):
                return History(found, [r for r in ordered if r.metadata.uid != found.metadata.uid], collision_count)
            collision_count = (collision_count or 0) + 1


async def truncate(client: Client, doomed: Sequence[Revision]) -> None:
    """Delete revisions."""
    for revision in doomed:
        await delete_if_present(client, Revision, name_of(revision), namespace_of(revision))
