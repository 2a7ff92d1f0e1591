"""Applies the objects of an addon by server-side apply, and deletes those of its ApplySet that are no longer wanted.

The parent lists kinds and namespaces before anything of them is applied, and drops them only when nothing of them is left, so
that whoever continues after an interruption finds every object. Objects are pruned only if all of the file were applied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field

from control.controllers.addons import confidential, members
from control.controllers.addons.applyset import (
    APPLIED,
    FAILED,
    LONGEST_MESSAGE,
    NAMESPACE,
    REMOVING,
    GroupKind,
    Parent,
    addon_identifier,
)
from control.controllers.addons.kinds import Kinds, StaleGroup
from control.controllers.addons.manifest import FIRST, LAST, Manifest, phases
from control.controllers.addons.members import FIELD_MANAGER, Key, Member
from control.controllers.addons.parents import Parents
from control.controllers.discovery import DiscoveredResource
from control.controllers.step_counter import REQUEST_STEPS, StepCounter
from kube import serialize
from kube.client import APPLY, Client
from kube.clock import Clock
from kube.errors import StatusError

DEFAULT_NAMESPACE = "default"
PROTECTED = {
    Key(GroupKind("", "Namespace"), "", name) for name in ("default", "kube-system", "kube-public", "kube-node-lease")
}
"""Objects of every cluster, which are never deleted."""
DEFINITION_SECONDS, DEFINITION_POLL = 5.0, 0.25
"""Time that new definitions have to be served before their objects are retried later."""
SHOWN_PROBLEMS = 5

_Known = dict[Key, tuple[str, str, str]]
"""UID and resourceVersion that an object had when it was applied, and the digest of what was applied."""


@dataclass(slots=True)
class Outcome:
    """The result of an attempt."""

    parent: Parent
    problems: list[str] = field(default_factory=list)
    reverted: list[Key] = field(default_factory=list)
    pruned: list[Key] = field(default_factory=list)
    remaining: int = 0
    """Objects that are still to be deleted, or whose deletion waits for finalizers."""
    abandoned: Collection[str] | None = None
    """ApplySets whose objects an addon may take over; None: they were not needed yet."""
    steps: StepCounter = field(default_factory=StepCounter)


class Application:
    """Applies and removes addons. `abandoned` returns the ApplySets whose objects an addon may take over."""

    def __init__(
        self, client: Client, parents: Parents, clock: Clock, abandoned: Callable[[], Awaitable[Collection[str]]]
    ) -> None:
        self._client, self._parents, self._clock, self._abandoned = client, parents, clock, abandoned
        self._kinds = Kinds(client, clock)
        self._known: dict[str, _Known] = {}

    async def apply(self, before: Parent, stored: Parent | None, manifests: list[Manifest], *, prune: bool) -> Outcome:
        """Apply an addon's objects; `before` is its parent as it is to be, with the kinds of `stored`. Raise StatusError."""
        await self._kinds.refresh()
        if self._unserved(manifests):
            await self._kinds.refresh(1.0)
        kinds = frozenset(each.kind for each in manifests)
        namespaces = frozenset(filter(None, (self._namespace(each) for each in manifests))) - {NAMESPACE}
        parent = dataclasses.replace(
            before, kinds=before.kinds | kinds, namespaces=before.namespaces | namespaces, objects=len(manifests)
        )
        parent = await self._parents.save(parent, stored)
        outcome = Outcome(parent)
        present = await self._present(parent, outcome.problems)
        known, first = self._known.setdefault(before.addon, {}), True
        for phase in phases(manifests):
            for manifest in phase:
                await self._apply(manifest, present, known, outcome)
            if first:
                first = False
                await self._wait_served([each for each in phase if each.kind in FIRST], manifests)
        wanted = {key for each in manifests if (key := self._key(each)) is not None}
        for key in known.keys() - wanted:
            del known[key]
        surplus = [each for key, each in present.items() if key not in wanted]
        if prune and not outcome.problems:
            await self._delete(surplus, outcome)
            if not outcome.remaining:
                parent = dataclasses.replace(parent, kinds=kinds, namespaces=namespaces)
        else:
            outcome.remaining = len(_deletable(surplus))
        state = FAILED if outcome.problems else APPLIED
        outcome.parent = await self._save_state(parent, outcome.parent, state, outcome.problems)
        return outcome

    async def remove(self, parent: Parent) -> Outcome:
        """Delete all objects of an addon, and its parent when they are gone. Raise StatusError."""
        self._known.pop(parent.addon, None)
        outcome = Outcome(parent)
        await self._kinds.refresh()
        present = await self._present(parent, outcome.problems)
        await self._delete(present.values(), outcome)
        if outcome.remaining or outcome.problems:
            outcome.parent = await self._save_state(parent, parent, REMOVING, outcome.problems)
        else:
            await self._parents.delete(parent)
        return outcome

    # -- objects ----------------------------------------------------------------------------------------------------
    async def _present(self, parent: Parent, problems: list[str]) -> dict[Key, Member]:
        namespaces = {*parent.namespaces, NAMESPACE}
        try:
            return await members.listed(
                self._client, self._kinds, addon_identifier(parent.addon), parent.kinds, namespaces
            )
        except (StatusError, StaleGroup) as error:
            problems.append(f"its objects cannot be listed: {error}")
            return {}

    async def _apply(self, manifest: Manifest, present: dict[Key, Member], known: _Known, outcome: Outcome) -> None:
        resource = self._kinds.applied(manifest.api_version, manifest.kind.kind)
        if resource is None:
            outcome.problems.append(
                f'{manifest}: no matches for kind "{manifest.kind.kind}" in version "{manifest.api_version}"'
            )
            return
        key = _key(manifest, resource)
        member, applied = present.get(key), known.get(key)
        if member is not None and not member.leaving and applied == (member.uid, member.version, manifest.digest):
            return
        await outcome.steps.count(REQUEST_STEPS)
        try:
            if member is None:
                member = await members.read(self._client, resource, key.namespace, key.name)
            if problem := await self._refusal(member, outcome):
                outcome.problems.append(f"{key}: {problem}")
                return
            uid, version = await self._patch(manifest, resource, key)
        except StatusError as error:
            outcome.problems.append(f"{key}: {confidential.of_request(key.kind, error)}")
            return
        if applied is not None and applied[2] == manifest.digest and (member is None or member.version != version):
            outcome.reverted.append(key)
        known[key] = uid, version, manifest.digest

    async def _refusal(self, member: Member | None, outcome: Outcome) -> str:
        """Return the reason why an object is not applied over the one that exists."""
        if member is None:
            return ""
        if member.leaving:
            return "it is being deleted"
        if member.part_of in ("", addon_identifier(outcome.parent.addon)):
            return ""
        if outcome.abandoned is None:
            outcome.abandoned = await self._abandoned()
        if member.part_of in outcome.abandoned:
            return ""
        return f"it belongs to another ApplySet, {member.part_of}: remove it from one of them"

    async def _patch(self, manifest: Manifest, resource: DiscoveredResource, key: Key) -> tuple[str, str]:
        """Apply an object; return its UID and resourceVersion. Raise StatusError."""
        metadata = {name: value for name, value in manifest.object["metadata"].items() if name != "namespace"}
        if resource.namespaced:
            metadata["namespace"] = key.namespace
        data = await self._client.call(
            "PATCH",
            resource.path(key.namespace, key.name),
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=serialize.encode_readable({**manifest.object, "metadata": metadata}),
            content_type=APPLY,
            accept=members.METADATA,
        )
        return members.identity(data, resource.path(key.namespace, key.name))

    async def _delete(self, surplus: Iterable[Member], outcome: Outcome) -> None:
        """Delete objects: webhooks before the servers that they call, namespaces and definitions last."""
        found = _deletable(surplus)
        for member in sorted(found, key=lambda each: (each.key.kind in FIRST, each.key.kind not in LAST, each.key)):
            if not member.leaving:
                await outcome.steps.count(REQUEST_STEPS)
                try:
                    await members.delete(self._client, member)
                    outcome.pruned.append(member.key)
                except StatusError as error:
                    text = confidential.of_request(member.key.kind, error)
                    outcome.problems.append(f"{member.key} cannot be deleted: {text}")
        outcome.remaining = len(found)

    async def _save_state(self, parent: Parent, stored: Parent, state: str, problems: list[str]) -> Parent:
        shown = "; ".join(problems[:SHOWN_PROBLEMS])
        if len(problems) > SHOWN_PROBLEMS:
            shown += f"; and {len(problems) - SHOWN_PROBLEMS} more"
        wanted = dataclasses.replace(parent, state=state, message=shown[:LONGEST_MESSAGE])
        return await self._parents.save(wanted, stored)

    # -- kinds ------------------------------------------------------------------------------------------------------
    def _unserved(self, manifests: Iterable[Manifest]) -> bool:
        return any(self._kinds.applied(each.api_version, each.kind.kind) is None for each in manifests)

    async def _wait_served(self, first: Collection[Manifest], manifests: list[Manifest]) -> None:
        """Wait until the kinds of definitions that were just applied are served, a few seconds at most."""
        groups = {(each.object.get("spec") or {}).get("group") for each in first if each.kind.group}
        waiting = [each for each in manifests if each.kind.group in groups]
        until = self._clock.monotonic() + DEFINITION_SECONDS
        while self._unserved(waiting) and self._clock.monotonic() < until:
            await self._clock.sleep(DEFINITION_POLL)
            await self._kinds.refresh(0)

    def _namespace(self, manifest: Manifest) -> str:
        """Return the namespace of an object, also while it is not known whether its kind has one."""
        resource = self._kinds.applied(manifest.api_version, manifest.kind.kind)
        return manifest.namespace or DEFAULT_NAMESPACE if resource is None or resource.namespaced else ""

    def _key(self, manifest: Manifest) -> Key | None:
        resource = self._kinds.applied(manifest.api_version, manifest.kind.kind)
        return None if resource is None else _key(manifest, resource)


def _key(manifest: Manifest, resource: DiscoveredResource) -> Key:
    return Key(manifest.kind, (manifest.namespace or DEFAULT_NAMESPACE) if resource.namespaced else "", manifest.name)


def _deletable(surplus: Iterable[Member]) -> list[Member]:
    """Return the objects that this program applied, without those that every cluster has."""
    return [each for each in surplus if each.applied and each.key not in PROTECTED]
