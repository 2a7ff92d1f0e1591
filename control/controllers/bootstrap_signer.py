"""Bootstrap signer: keeps the discovery document signed with every token that may sign it.

ConfigMap kube-public/cluster-info says where the cluster is and what its CA is, to machines that do not trust it yet. For each
bootstrap token with usage-bootstrap-signing it carries a signature, `jws-kubeconfig-<id>`; those of tokens that are gone,
expired or changed are removed. Upstream: pkg/controller/bootstrap/bootstrapsigner.go.
"""

from __future__ import annotations

import base64
import binascii

import msgspec

from control.controllers.context import Context
from control.controllers.token_cleaner import expires_in
from kube import bootstrap_tokens
from kube.api import core_v1
from kube.bootstrap_tokens import CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, KUBECONFIG_KEY, SIGNATURE_PREFIX, Token
from kube.controller import Controller

KEY = f"{CLUSTER_INFO_NAMESPACE}/{CLUSTER_INFO}"


def signing_token(secret: core_v1.Secret) -> Token | None:
    """Return the token that a Secret holds, None if it is none or not one for signing."""
    try:
        data = {key: base64.b64decode(text, validate=True).decode() for key, text in secret.data.items()}
        token = bootstrap_tokens.parse(f"{data.get('token-id', '')}.{data.get('token-secret', '')}")
    except (ValueError, binascii.Error):
        return None
    named = secret.metadata.name == token.secret_name and not secret.metadata.deletion_timestamp
    return token if named and data.get("usage-bootstrap-signing") == "true" else None


def signed(data: dict[str, str], tokens: list[Token]) -> dict[str, str]:
    """Return the document's data with exactly the signatures of these tokens."""
    kept = {key: text for key, text in data.items() if not key.startswith(SIGNATURE_PREFIX)}
    content = data.get(KUBECONFIG_KEY)
    if content is not None:
        kept |= {SIGNATURE_PREFIX + token.id: bootstrap_tokens.sign(content, token) for token in tokens}
    return kept


class BootstrapSigner:
    """Follows the bootstrap tokens and the discovery document."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        selector = f"type={bootstrap_tokens.SECRET_TYPE}"
        self._secrets = context.informers.filtered(
            core_v1.Secret, bootstrap_tokens.SECRET_NAMESPACE, field_selector=selector
        )
        self._documents = context.informers.filtered(
            core_v1.ConfigMap, CLUSTER_INFO_NAMESPACE, field_selector=f"metadata.name={CLUSTER_INFO}"
        )
        self.controller = Controller(
            "bootstrap signer", self.reconcile, workers=1, queue="bootstrap_signer_queue", clock=context.clock
        )
        self._secrets.subscribe(lambda change: self.controller.enqueue(KEY))
        self._documents.subscribe(lambda change: self.controller.enqueue(KEY))

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    async def reconcile(self, key: str) -> float | None:
        """Sign the document again where it needs it; return the seconds until the next token expires."""
        document = self._documents.get(key)
        if document is None:
            return None
        tokens, waits, now = [], [], self._clock.now()
        for secret in self._secrets.list():
            token, wait = signing_token(secret), expires_in(secret, now)
            if token is None or (wait is not None and wait <= 0):
                continue
            tokens.append(token)
            if wait is not None:
                waits.append(wait)
        data = signed(document.data, tokens)
        if data != document.data:
            await self._client.update(msgspec.structs.replace(document, data=data))
        return min(waits, default=None)
