"""All of authentication and authorization put together, as the API server needs it.

The server makes one `Auth`, feeds every object of `follows` into it from the watch cache (`replaced` once, then `changed`), and
asks `authenticator`, `anonymous`, `impersonation.impersonate` and `authorizer` on each request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509

from control.auth.authenticators import AnonymousPolicy, UnionAuthenticator
from control.auth.authorizers import MastersAuthorizer, UnionAuthorizer
from control.auth.node import NodeAuthorizer
from control.auth.oidc import Issuer, OIDCAuthenticator
from control.auth.rbac import RBACAuthorizer
from control.auth.service_account import ISSUER, Lookup, ServiceAccountAuthenticator, TokenSigner
from control.auth.tokens import BootstrapTokenAuthenticator, StaticTokenAuthenticator
from control.auth.user import Authenticator
from control.auth.x509 import CertificateAuthenticator
from kube import pki
from kube.clock import Clock


@dataclass(frozen=True, slots=True)
class Auth:
    """Who a request comes from and what they may do."""

    authenticator: UnionAuthenticator
    anonymous: AnonymousPolicy
    authorizer: UnionAuthorizer
    service_accounts: ServiceAccountAuthenticator
    signer: TokenSigner
    rbac: RBACAuthorizer
    node: NodeAuthorizer

    @property
    def follows(self) -> tuple[str, ...]:
        """The resources (Resource.target) that must be fed in."""
        return (*self.rbac.follows, *self.node.follows)

    def changed(self, target: str, event: str, obj: dict[str, Any]) -> None:
        """Take one change (ADDED, MODIFIED, DELETED) of a followed resource."""
        for follower in (self.rbac, self.node):
            if target in follower.follows:
                follower.changed(target, event, obj)

    def replaced(self, target: str, objects: Iterable[dict[str, Any]]) -> None:
        """Take the full list of one followed resource."""
        found = list(objects)
        for follower in (self.rbac, self.node):
            if target in follower.follows:
                follower.replaced(target, found)


def build(
    *,
    client_authorities: Sequence[x509.Certificate],
    service_account_key: pki.PrivateKey,
    lookup: Lookup,
    clock: Clock,
    issuer: str = ISSUER,
    audiences: Sequence[str] = (),
    static_tokens: str = "",
    issuers: Sequence[Issuer] = (),
    anonymous: AnonymousPolicy | None = None,
) -> Auth:
    """Build it. `lookup(plural, namespace, name)` returns core objects from the watch cache."""
    signer = TokenSigner(service_account_key, issuer)
    accounts = ServiceAccountAuthenticator(signer, lookup, clock, audiences)
    authenticators: list[Authenticator] = [CertificateAuthenticator(client_authorities, clock)]
    if static_tokens:
        authenticators.append(StaticTokenAuthenticator(static_tokens))
    authenticators += [accounts, BootstrapTokenAuthenticator(lambda ns, name: lookup("secrets", ns, name), clock)]
    authenticators += [OIDCAuthenticator(issuer, clock) for issuer in issuers]
    rbac, node = RBACAuthorizer(), NodeAuthorizer()
    return Auth(
        UnionAuthenticator(authenticators),
        anonymous or AnonymousPolicy(),
        UnionAuthorizer([MastersAuthorizer(), node, rbac]),
        accounts,
        signer,
        rbac,
        node,
    )
