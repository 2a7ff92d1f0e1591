"""Assembles authentication and authorization for the API server.

The server creates one `Auth`, passes every object of the resources in `follows` to it from the watch cache (`replaced` once,
then `changed`), and calls `authenticator`, `anonymous`, `impersonation.impersonate` and `authorizer` for each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509

from control.auth.abac import ABACAuthorizer
from control.auth.authenticators import AnonymousPolicy, UnionAuthenticator
from control.auth.authorization_configuration import Entry, connected
from control.auth.authorizers import AlwaysAllow, AlwaysDeny, AsyncAuthorizer, Link, MastersAuthorizer, UnionAuthorizer
from control.auth.node import NodeAuthorizer
from control.auth.oidc import Issuer, OIDCAuthenticator
from control.auth.rbac import RBACAuthorizer
from control.auth.request_header import RequestHeaderAuthenticator
from control.auth.service_account_tokens import Lookup, ServiceAccountAuthenticator
from control.auth.static_tokens import BootstrapTokenAuthenticator, StaticTokenAuthenticator
from control.auth.token_signer import ISSUER, TokenSigner
from control.auth.user import Authenticator, Authorizer
from control.auth.webhooks.access import WebhookAuthorizer
from control.auth.webhooks.client import ReviewClient
from control.auth.webhooks.token import TokenWebhook
from control.auth.x509 import CertificateAuthenticator
from kube import pki
from kube.clock import Clock

MakeClient = Callable[[Path, float], ReviewClient]
"""Returns the client of a webhook: of its kubeconfig, with a timeout in seconds."""


class Auth(msgspec.Struct):
    """Authentication and authorization. The first three are reloaded with their configuration files."""

    authenticator: UnionAuthenticator
    anonymous: AnonymousPolicy
    authorizer: UnionAuthorizer
    service_accounts: ServiceAccountAuthenticator
    signer: TokenSigner
    rbac: RBACAuthorizer
    node: NodeAuthorizer
    token_webhook: TokenWebhook | None
    clock: Clock
    abac: ABACAuthorizer | None = None
    extend_tokens: bool = True
    """Tokens that kubelets request for pods are valid for a year."""

    def replace_issuers(self, issuers: Sequence[Issuer]) -> None:
        """Trust the ID tokens of these issuers; known issuers keep their fetched keys."""
        authenticators = list(self.authenticator.authenticators)
        before = [a for a in authenticators if isinstance(a, OIDCAuthenticator)]
        at = next((i for i, a in enumerate(authenticators) if isinstance(a, OIDCAuthenticator)), None)
        if at is None:
            at = len(authenticators) - (self.token_webhook is not None)
        others = [a for a in authenticators if not isinstance(a, OIDCAuthenticator)]
        fresh = [
            next((a for a in before if a.issuer == issuer), None) or OIDCAuthenticator(issuer, self.clock)
            for issuer in issuers
        ]
        self.authenticator.replace([*others[:at], *fresh, *others[at:]])

    def replace_authorizers(self, entries: Sequence[Entry], make_client: MakeClient) -> list[AsyncAuthorizer]:
        """Use these authorizers from now on; return the webhooks that are no longer used. Raises ConfigurationError."""
        links = _links(entries, make_client, self.node, self.rbac, self.abac, self.clock)
        before = [link.authorizer for link in self.authorizer.links if isinstance(link.authorizer, AsyncAuthorizer)]
        self.authorizer.replace(links)
        return before

    @property
    def follows(self) -> tuple[str, ...]:
        """The resources (Resource.target) whose objects must be passed in."""
        return (*self.rbac.follows, *self.node.follows)

    def changed(self, target: str, event: str, obj: dict[str, Any]) -> None:
        """Apply one change (ADDED, MODIFIED, DELETED) of a watched resource."""
        for follower in (self.rbac, self.node):
            if target in follower.follows:
                follower.changed(target, event, obj)

    def replaced(self, target: str, objects: Iterable[dict[str, Any]]) -> None:
        """Replace all objects of a watched resource."""
        found = list(objects)
        for follower in (self.rbac, self.node):
            if target in follower.follows:
                follower.replaced(target, found)


def _no_webhook(path: Path, timeout: float) -> ReviewClient:
    raise AssertionError("the default chain has no webhooks")


DEFAULT = (Entry("Node", "node"), Entry("RBAC", "rbac"))


def build(
    *,
    client_authorities: Callable[[], Sequence[x509.Certificate]],
    service_account_key: pki.PrivateKey,
    lookup: Lookup,
    clock: Clock,
    issuer: str = ISSUER,
    audiences: Sequence[str] = (),
    static_tokens: str = "",
    issuers: Sequence[Issuer] = (),
    anonymous: AnonymousPolicy | None = None,
    front_proxy: RequestHeaderAuthenticator | None = None,
    make_token_webhook: Callable[[Sequence[str]], TokenWebhook] | None = None,
    verification_keys: Sequence[pki.PublicKey] = (),
    secret_used: Callable[[dict[str, Any]], None] = lambda secret: None,
    extend_tokens: bool = True,
    authorizers: Sequence[Entry] = DEFAULT,
    make_client: MakeClient = _no_webhook,
    abac: ABACAuthorizer | None = None,
) -> Auth:
    """Build it. `lookup(plural, namespace, name)` returns core objects from the watch cache.

    `make_token_webhook` is given the audiences of this server. `abac` is the authorizer of entries of its type. Raises
    ConfigurationError.
    """
    signer = TokenSigner(service_account_key, issuer, verification_keys)
    accounts = ServiceAccountAuthenticator(signer, lookup, clock, audiences, secret_used)
    authenticators: list[Authenticator] = [front_proxy] if front_proxy else []
    authenticators.append(CertificateAuthenticator(client_authorities, clock))
    if static_tokens:
        authenticators.append(StaticTokenAuthenticator(static_tokens))
    authenticators += [accounts, BootstrapTokenAuthenticator(lambda ns, name: lookup("secrets", ns, name), clock)]
    authenticators += [OIDCAuthenticator(issuer, clock) for issuer in issuers]
    webhook = make_token_webhook(accounts.audiences) if make_token_webhook else None
    if webhook is not None:
        authenticators.append(webhook)
    rbac, node = RBACAuthorizer(), NodeAuthorizer()
    return Auth(
        UnionAuthenticator(authenticators),
        anonymous or AnonymousPolicy(),
        UnionAuthorizer(_links(authorizers, make_client, node, rbac, abac, clock)),
        accounts,
        signer,
        rbac,
        node,
        webhook,
        clock,
        abac,
        extend_tokens,
    )


def _links(
    entries: Sequence[Entry],
    make_client: MakeClient,
    node: NodeAuthorizer,
    rbac: RBACAuthorizer,
    abac: ABACAuthorizer | None,
    clock: Clock,
) -> list[Link]:
    """Return the chain of authorizers of a configuration, after the one for administrators."""
    own: dict[str, Authorizer] = {"Node": node, "RBAC": rbac}
    own |= {"AlwaysAllow": AlwaysAllow(), "AlwaysDeny": AlwaysDeny()}
    if abac is not None:
        own["ABAC"] = abac
    links = [Link("", "", MastersAuthorizer())]
    for entry in entries:
        authorizer = own.get(entry.type)
        if entry.webhook is not None:
            authorizer = WebhookAuthorizer(connected(entry, make_client), entry.webhook, clock)
        assert authorizer is not None
        links.append(Link(entry.type, entry.name, authorizer))
    return links
