"""Service-account token Secrets: one that somebody makes is filled with a token, and goes with its account.

A Secret of type kubernetes.io/service-account-token names its account in an annotation; it gets the account's uid, a
token without expiry, the namespace and the CA. Upstream: pkg/controller/serviceaccount/tokens_controller.go.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

import msgspec

from control.auth import secret_tokens
from control.auth.token_signer import TokenSigner
from control.controllers.context import Context
from kube import pki
from kube.api import core_v1
from kube.controller import Controller
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of, namespace_of


class AccountTokenController:
    """Follows token Secrets and ServiceAccounts."""

    def __init__(self, context: Context, signing_key: str, root_ca: str) -> None:
        self._client, self._root_ca = context.client, root_ca
        self._signer = TokenSigner(pki.decode_key(signing_key.encode()))
        self._secrets = context.informers.filtered(core_v1.Secret, field_selector=f"type={secret_tokens.SECRET_TYPE}")
        self._accounts = context.informers.of(core_v1.ServiceAccount)
        self.controller = Controller(
            "service account tokens",
            self.reconcile,
            workers=1,
            queue="serviceaccount_tokens_secret",
            clock=context.clock,
        )
        self._secrets.add_index("account", _account_of)
        self._secrets.subscribe(lambda change: self.controller.enqueue(change.key))
        self._accounts.subscribe(self._account_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _account_changed(self, change: Change[core_v1.ServiceAccount]) -> None:
        if change.old is None or change.type == "DELETED" or change.old.metadata.uid != change.new.metadata.uid:
            for secret in self._secrets.by_index("account", change.key):
                self.controller.enqueue(key_of(secret))

    async def reconcile(self, key: str) -> None:
        """Fill one Secret, or delete it where its account is gone."""
        secret = self._secrets.get(key)
        if secret is None or secret.metadata.deletion_timestamp is not None:
            return
        name, namespace = secret.metadata.annotations.get(secret_tokens.NAME_ANNOTATION, ""), namespace_of(secret)
        try:
            account = await self._client.get(core_v1.ServiceAccount, name, namespace)
        except StatusError as error:
            if not error.not_found:
                raise
            await self._delete(secret)
            return
        uid = account.metadata.uid or ""
        known = secret.metadata.annotations.get(secret_tokens.UID_ANNOTATION)
        if known and known != uid:
            await self._delete(secret)
            return
        wanted = self._wanted(secret, name, uid)
        annotations = {**secret.metadata.annotations, secret_tokens.UID_ANNOTATION: uid}
        if wanted == secret.data and annotations == secret.metadata.annotations:
            return
        metadata = msgspec.structs.replace(secret.metadata, annotations=annotations)
        await self._client.update(msgspec.structs.replace(secret, metadata=metadata, data=wanted))

    def _wanted(self, secret: core_v1.Secret, account: str, uid: str) -> dict[str, str]:
        """Return the Secret's data with what it lacks; a token that is there stays."""
        namespace, data = namespace_of(secret), dict(secret.data)
        data["namespace"] = _base64(namespace)
        if self._root_ca:
            data["ca.crt"] = _base64(self._root_ca)
        if not data.get("token"):
            data["token"] = _base64(
                self._signer.sign(secret_tokens.make_claims(namespace, account, uid, name_of(secret)))
            )
        return data

    async def _delete(self, secret: core_v1.Secret) -> None:
        await delete_if_present(
            self._client, core_v1.Secret, name_of(secret), namespace_of(secret), uid=secret.metadata.uid or ""
        )


def _account_of(secret: core_v1.Secret) -> Iterable[str]:
    """Index function: the key of the account that a token Secret names."""
    name = secret.metadata.annotations.get(secret_tokens.NAME_ANNOTATION)
    return (f"{namespace_of(secret)}/{name}",) if name else ()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
