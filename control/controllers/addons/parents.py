"""Parents of the addons' ApplySets in the API: read, applied and deleted."""

from __future__ import annotations

from control.controllers.addons.applyset import ADDON, NAMESPACE, Parent, is_parent_of, parent_name
from control.controllers.addons.members import FIELD_MANAGER
from kube.api import core_v1
from kube.client import APPLY, Client
from kube.deletion import delete_if_present
from kube.errors import StatusError


class ParentConflict(Exception):
    """A ConfigMap with the name of an addon's parent is somebody else's."""


class Parents:
    """The ConfigMaps of kube-system that are parents of addons."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, addon: str) -> Parent | None:
        """Return an addon's parent, None if there is none. Raise StatusError, ParentConflict."""
        try:
            found = await self._client.get(core_v1.ConfigMap, parent_name(addon), NAMESPACE)
        except StatusError as error:
            if error.not_found:
                return None
            raise
        if not is_parent_of(addon, found):
            raise ParentConflict(
                f"the ConfigMap {NAMESPACE}/{parent_name(addon)} is not the addon's: delete or rename one of them"
            )
        return Parent.read(found)

    async def all(self) -> list[Parent]:
        """Return the parents of all addons. Raise StatusError."""
        return [Parent.read(each) for each in await self._stored()]

    async def addons(self) -> list[str]:
        """Return the names of the addons that have a parent. Raise StatusError."""
        return [each.metadata.labels[ADDON] for each in await self._stored()]

    async def _stored(self) -> list[core_v1.ConfigMap]:
        found = await self._client.list(core_v1.ConfigMap, NAMESPACE, label_selector=ADDON)
        return [each for each in found.items if is_parent_of(each.metadata.labels.get(ADDON, ""), each)]

    async def save(self, parent: Parent, before: Parent | None) -> Parent:
        """Write a parent unless it is stored so; return it as it is stored. Raise StatusError."""
        if before is not None and parent == before:
            return before
        name = parent_name(parent.addon)
        made = await self._client.patch(
            core_v1.ConfigMap, name, NAMESPACE, parent.as_object(), type=APPLY, field_manager=FIELD_MANAGER, force=True
        )
        return Parent.read(made)

    async def delete(self, parent: Parent) -> None:
        """Delete a parent. Raise StatusError."""
        await delete_if_present(self._client, core_v1.ConfigMap, parent_name(parent.addon), NAMESPACE, uid=parent.uid)
