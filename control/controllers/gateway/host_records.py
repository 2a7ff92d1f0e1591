"""Records of the owners of Ingresses' hosts: read at the start, written before anything is served for these.

The controller restores records that others change or delete.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from control.controllers.gateway.host_claims import Claims, claimed
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.clock import Clock
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.gateway.ingress_hosts import Named, Owners, record, recorded, recorded_owners
from kube.gateway.names import HOSTS, INGRESS, NAMESPACE
from kube.gateway.steps import completed
from kube.informer import Change, Informer
from kube.object_names import name_of

_MARK = f"{NAMESPACE}/{HOSTS}"


class HostRecords:
    """Claims, and the ConfigMaps with them. `affected` gets INGRESS if they have to be computed or written again."""

    def __init__(
        self, client: Client, clock: Clock, records: Informer[core_v1.ConfigMap], affected: Callable[[str], None]
    ) -> None:
        self._client, self._clock, self._records, self._affected = client, clock, records, affected
        self._claims = Claims()
        self._complete = False
        """True once all claims are recorded; before, hosts that other namespaces' wildcards include are claimed by age."""

    async def restore(self) -> None:
        """Restore the claims from the records, before new ones are computed."""
        self._claims = Claims(await completed(recorded_owners(self._records)))
        self._complete = self._records.get(_MARK) is not None
        self._records.subscribe(self._changed)

    def owners(self, named: Named) -> Generator[int, None, Owners]:
        """Claim hosts for the Ingresses that name them, and return the owners of all."""
        now = self._clock.monotonic()
        self._claims = yield from claimed(self._claims, named, now, wildcards_exclusive=self._complete)
        if self._claims.incomplete:
            self._affected(INGRESS)
        return self._claims.owners

    @property
    def seconds(self) -> float | None:
        """Return the time until a host is given up."""
        until = min(self._claims.until.values(), default=None)
        return None if until is None else max(0.0, until - self._clock.monotonic())

    async def write(self) -> None:
        """Write the claims into the records: first those that exist, then new ones, last the mark. Raises StatusError."""
        texts = self._claims.texts
        stored = {namespace: each for each in self._records.list() if (namespace := recorded(each)[0])}
        for namespace in stored.keys() - texts.keys():
            found = stored[namespace]
            uid = found.metadata.uid or ""
            await delete_if_present(self._client, core_v1.ConfigMap, name_of(found), NAMESPACE, uid=uid)
        differing = [each for each, text in texts.items() if each not in stored or recorded(stored[each])[1] != text]
        for namespace in sorted(differing, key=lambda each: each not in stored):
            wanted = record(namespace, texts[namespace])
            if namespace in stored:
                wanted.metadata.resource_version = stored[namespace].metadata.resource_version
                await self._client.update(wanted)
            else:
                await self._create(wanted)
        if self._records.get(_MARK) is None:
            await self._create(core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name=HOSTS, namespace=NAMESPACE)))
        self._complete = True

    async def _create(self, wanted: core_v1.ConfigMap) -> None:
        try:
            await self._client.create(wanted)
        except StatusError as error:
            if not error.already_exists:  # it is not known yet; its event brings us back
                raise

    def _changed(self, change: Change[core_v1.ConfigMap]) -> None:
        namespace, text = recorded(change.new)
        if change.type == "DELETED":
            differs = change.key == _MARK or namespace in self._claims.texts
        else:
            differs = bool(namespace) and self._claims.texts.get(namespace) != text
        if differs:
            self._affected(INGRESS)
