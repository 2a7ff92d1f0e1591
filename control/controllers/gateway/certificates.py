"""Copies of certificates in the gateways' namespace: nodes read these, never the Secrets of users.

A copy exists only while a listener or Ingress uses the Secret, and may refer to it. The states of Secrets are kept until they
change, as their check costs a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from control.controllers.gateway.certificate_check import TYPE, CertificateRefused, checked
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.deletion import delete_if_present
from kube.gateway.names import CERTIFICATE, NAMESPACE, copy_of
from kube.gateway.view import Certificate
from kube.informer import Change, Informer
from kube.object_names import key_of, name_of, namespace_of

Pair = tuple[str, str]
"""Namespace and name of a Secret."""


class Certificates:
    """Follows the Secrets of type kubernetes.io/tls. `copy_changed` gets names of copies that are to be reconciled."""

    def __init__(
        self,
        client: Client,
        secrets: Informer[core_v1.Secret],
        changed: Callable[[str, str], None],
        copy_changed: Callable[[str], None],
    ) -> None:
        self._client, self._secrets = client, secrets
        self._changed, self._copy_changed = changed, copy_changed
        self._states: dict[str, Certificate] = {}
        self._uses: dict[str, frozenset[Pair]] = {}
        self._sources: dict[str, tuple[Pair, set[str]]] = {}
        secrets.subscribe(self._secret_changed)

    def state(self, namespace: str, name: str) -> Certificate:
        """Return the state of a Secret as a certificate."""
        secret = None if namespace == NAMESPACE else self._secrets.get(f"{namespace}/{name}")
        if secret is None or secret.type != TYPE:
            return "missing"
        key = f"{namespace}/{name}"
        if key not in self._states:
            self._states[key] = _state(secret)
        return self._states[key]

    def use(self, user: str, wanted: Iterable[Pair]) -> None:
        """Record the certificates that a Gateway uses, none when it is gone."""
        before, after = self._uses.pop(user, frozenset()), frozenset(wanted)
        if after:
            self._uses[user] = after
        for pair in before - after:
            copy = copy_of(*pair)
            users = self._sources[copy][1]
            users.discard(user)
            if not users:
                del self._sources[copy]
            self._copy_changed(copy)
        for pair in after - before:
            copy = copy_of(*pair)
            self._sources.setdefault(copy, (pair, set()))[1].add(user)
            self._copy_changed(copy)

    def copies(self) -> list[str]:
        """Return the names of the copies that exist."""
        found = self._secrets.list()
        return [
            name_of(each) for each in found if namespace_of(each) == NAMESPACE and CERTIFICATE in each.metadata.labels
        ]

    def namespace_of(self, copy: str) -> str:
        """Return the namespace of the Secret of a copy, that of copies if nothing refers to it."""
        source = self._sources.get(copy)
        if source is not None:
            return source[0][0]
        found = self._secrets.get(f"{NAMESPACE}/{copy}")
        return (found.metadata.annotations.get(CERTIFICATE, "") if found else "").partition("/")[0] or NAMESPACE

    async def reconcile(self, copy: str) -> None:
        """Bring one copy to what its Secret is, or delete it. Raises StatusError."""
        found, data = self._secrets.get(f"{NAMESPACE}/{copy}"), None
        source = self._sources.get(copy)
        if source is not None:
            data = self._data(*source[0])
        if data is None or source is None:
            if found is not None and CERTIFICATE in found.metadata.labels:
                uid = found.metadata.uid or ""
                await delete_if_present(self._client, core_v1.Secret, name_of(found), NAMESPACE, uid=uid)
            return
        key = "/".join(source[0])
        if found is None:
            await self._client.create(_copy(copy, key, data))
        elif found.data != data or found.metadata.annotations.get(CERTIFICATE) != key:
            wanted = _copy(copy, key, data)
            wanted.metadata.resource_version = found.metadata.resource_version
            await self._client.update(wanted)

    def _data(self, namespace: str, name: str) -> dict[str, str] | None:
        secret = self._secrets.get(f"{namespace}/{name}")
        if secret is None or self.state(namespace, name):
            return None
        try:
            return checked(secret)
        except CertificateRefused:
            return None

    def _secret_changed(self, change: Change[core_v1.Secret]) -> None:
        secret = change.new
        namespace, name = namespace_of(secret), name_of(secret)
        if namespace == NAMESPACE:
            if CERTIFICATE in secret.metadata.labels or name in self._sources:
                self._copy_changed(name)
            return
        if change.type == "MODIFIED" and change.old is not None and change.old.data == secret.data:
            return
        self._states.pop(key_of(secret), None)
        self._changed(namespace, name)
        if (copy := copy_of(namespace, name)) in self._sources:
            self._copy_changed(copy)


def _state(secret: core_v1.Secret) -> Certificate:
    try:
        checked(secret)
    except CertificateRefused:
        return "invalid"
    return ""


def _copy(name: str, source: str, data: dict[str, str]) -> core_v1.Secret:
    metadata = meta_v1.ObjectMeta(
        name=name, namespace=NAMESPACE, labels={CERTIFICATE: "copy"}, annotations={CERTIFICATE: source}
    )
    return core_v1.Secret(metadata=metadata, type=TYPE, data=data)
