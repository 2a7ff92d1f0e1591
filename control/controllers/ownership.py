"""Controller references: adoption of orphans and release of pods that no longer match.

A controller's children are those of its namespace whose controller reference has its UID. An orphan that matches the
selector is adopted, after a live look at the controller (its UID might be gone, and then the garbage collector would take
the child); a child that no longer matches is released. Upstream: pkg/controller/controller_ref_manager.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from control.controllers.concurrent_requests import for_each
from control.controllers.step_counter import StepCounter, selects
from kube import resources
from kube.api import meta_v1
from kube.client import STRATEGIC, Client
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.object_names import metadata_of, name_of, namespace_of
from kube.selectors import LabelSelector

T = TypeVar("T", bound=msgspec.Struct)


def controller_of(obj: Any) -> meta_v1.OwnerReference | None:
    """Return the reference to the owner that controls an object."""
    for reference in metadata_of(obj).owner_references:
        if reference.controller:
            return reference
    return None


def controller_uid(obj: Any) -> str:
    found = controller_of(obj)
    return found.uid if found else ""


def controller_reference(owner: Any) -> meta_v1.OwnerReference:
    """Make the reference that names `owner` as an object's controller."""
    resource = resources.of(type(owner))
    return meta_v1.OwnerReference(
        api_version=resource.api_version,
        kind=resource.kind,
        name=name_of(owner),
        uid=metadata_of(owner).uid or "",
        controller=True,
        block_owner_deletion=True,
    )


def by_controller_or_orphan(obj: Any) -> Iterable[str]:
    """Index function for the index "claim": namespace and UID of the controller, without a UID for what has none.

    The author of an object may name any controller, also one of another namespace.
    """
    return (f"{namespace_of(obj)}/{controller_uid(obj)}",)


def children_of(informer: Informer[T], owner: Any) -> list[T]:
    """Return the objects of the owner's namespace that it controls; the informer has the index "claim" made as above."""
    return informer.by_index("claim", f"{namespace_of(owner)}/{metadata_of(owner).uid}")


def claimable(informer: Informer[T], owner: Any) -> list[T]:
    """Return the owner's children and its namespace's orphans; the informer has the index "claim" made as above."""
    return children_of(informer, owner) + informer.by_index("claim", f"{namespace_of(owner)}/")


def lost_by(change: Change[Any], kind: str) -> str:
    """Return the key of the controller of a kind that a child had before a change and has no longer; "" where none."""
    before = None if change.old is None else controller_of(change.old)
    if before is None or before.kind != kind:
        return ""
    after = controller_of(change.new)
    return "" if after is not None and after.uid == before.uid else f"{metadata_of(change.new).namespace}/{before.name}"


async def claim(
    client: Client,
    owner: Any,
    candidates: Iterable[T],
    selector: LabelSelector,
    finalizers: Sequence[str] = (),
) -> list[T]:
    """Return the candidates that belong to `owner`, adopting (with `finalizers`) and releasing on the way.

    The first failure of an adoption is raised after all have been tried; a child that is gone is passed over.
    """
    claimed: list[T] = []
    adopt: list[T] = []
    release: list[T] = []
    dying, counter = metadata_of(owner).deletion_timestamp is not None, StepCounter()
    for child in candidates:
        metadata = metadata_of(child)
        controller = controller_of(child)
        if controller is not None:
            if controller.uid != metadata_of(owner).uid:
                continue
            if await selects(selector, metadata.labels, counter):
                claimed.append(child)
            elif not dying:
                release.append(child)
        elif not dying and metadata.deletion_timestamp is None and await selects(selector, metadata.labels, counter):
            adopt.append(child)
    if adopt:
        await _check_alive(client, owner)
    adopted: set[int] = set()

    async def change(number: int) -> None:
        if number >= len(adopt):
            child = release[number - len(adopt)]
            await _patch(client, child, _release(owner, child))
        elif await _patch(client, adopt[number], _adoption(owner, adopt[number], finalizers)):
            adopted.add(number)

    failure = await for_each(range(len(adopt) + len(release)), change)
    if failure is not None:
        raise failure
    return claimed + [adopt[number] for number in sorted(adopted)]


async def _check_alive(client: Client, owner: Any) -> None:
    fresh = await client.get(type(owner), name_of(owner), namespace_of(owner))
    metadata = metadata_of(fresh)
    if metadata.uid != metadata_of(owner).uid:
        raise StatusError(409, "Conflict", f"original {name_of(owner)} is gone: got uid {metadata.uid}")
    if metadata.deletion_timestamp is not None:
        raise StatusError(409, "Conflict", f"{name_of(owner)} has just been deleted at {metadata.deletion_timestamp}")


async def _patch(client: Client, child: T, patch: dict[str, Any]) -> bool:
    """Send a patch; False if the child is gone or was recreated (the uid in the patch is then invalid)."""
    try:
        await client.patch(type(child), name_of(child), namespace_of(child), patch, type=STRATEGIC)
    except StatusError as error:
        if error.not_found or error.reason == "Invalid":
            return False
        raise
    return True


def _adoption(owner: Any, child: Any, finalizers: Sequence[str]) -> dict[str, Any]:
    reference = msgspec.to_builtins(controller_reference(owner))
    metadata = {"uid": metadata_of(child).uid, "ownerReferences": [reference]}
    return {"metadata": {**metadata, "finalizers": list(finalizers)} if finalizers else metadata}


def _release(owner: Any, child: Any) -> dict[str, Any]:
    gone = {"$patch": "delete", "uid": metadata_of(owner).uid}
    return {"metadata": {"uid": metadata_of(child).uid, "ownerReferences": [gone]}}
