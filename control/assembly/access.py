"""Authentication and authorization as the configuration files define them, reloaded when they change.

A file that cannot be used stops the server when it starts. One that is changed into such a file while the server runs changes
nothing: the former configuration stays in force, the log says what is wrong, and a counter counts it.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cryptography import x509

from control.assembly.reloading import Reloaded
from control.auth import abac, authorization_modes, oidc_flags, setup
from control.auth.authenticators import HEALTH_PATHS, AnonymousPolicy
from control.auth.authorization_configuration import Entry
from control.auth.authorization_configuration import parse as parse_authorization
from control.auth.authorizers import AsyncAuthorizer
from control.auth.configuration import Authentication, ConfigurationError
from control.auth.configuration import parse as parse_authentication
from control.auth.request_header import RequestHeaderAuthenticator, request_headers
from control.auth.service_account_tokens import Lookup
from control.auth.webhooks.access import WebhookAuthorizer
from control.auth.webhooks.client import ReviewClient
from control.auth.webhooks.token import TokenWebhook
from control.config import ControlConfig
from kube import cancellation, pki
from kube.clock import Clock
from kube.tls_files import FromFiles

log = logging.getLogger(__name__)
GRACE = 60.0
"""Seconds that a replaced webhook client keeps its connections, for requests in flight."""


class Access:
    """`auth` is the server's interface; `run` reloads its files until cancelled."""

    def __init__(
        self,
        config: ControlConfig,
        lookup: Lookup,
        clock: Clock,
        secret_used: Callable[[dict[str, Any]], None] = lambda secret: None,
    ) -> None:
        self._config, self._clock = config, clock
        self._authentication = Reloaded("authentication", config.authentication_config_file)
        self._authorization = Reloaded("authorization", config.authorization_config_file)
        found = self._read_authentication(self._authentication.first())
        self._others: frozenset[str] | None = None
        authorizers, policy = self._first_authorizers(self._authorization.first())
        self.auth = setup.build(
            client_authorities=_authorities(config.client_ca_file),
            service_account_key=pki.decode_key(config.service_account_key_file.read_bytes()),
            lookup=lookup,
            clock=clock,
            issuer=config.service_account_issuer,
            audiences=config.api_audiences,
            static_tokens=config.token_file.read_text() if config.token_file else "",
            issuers=found.issuers,
            anonymous=found.anonymous,
            front_proxy=self._front_proxy(),
            make_token_webhook=self._token_webhook if config.authentication_webhook_file else None,
            verification_keys=self._verification_keys(),
            secret_used=secret_used,
            extend_tokens=config.service_account_extend_token_expiration,
            authorizers=authorizers,
            make_client=self._client,
            abac=policy,
        )

    # -- reading --------------------------------------------------------------------------------------------------
    def _read_authentication(self, text: bytes | None) -> Authentication:
        default = AnonymousPolicy(True, None if self._allows_anonymous() else HEALTH_PATHS)
        if text is None:
            return Authentication(oidc_flags.authentication(self._config).issuers, default)
        oidc_flags.authentication(self._config)
        try:
            found = parse_authentication(text)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._config.authentication_config_file}: {error}") from error
        return Authentication(found.issuers, found.anonymous or default)

    def _first_authorizers(self, text: bytes | None) -> tuple[Sequence[Entry], abac.ABACAuthorizer | None]:
        """Return the authorizers of the configuration file or, without one, of the options."""
        config = self._config
        if text is None:
            path = config.authorization_policy_file
            return authorization_modes.entries(config), abac.load(path) if path is not None else None
        if config.authorization_modes != authorization_modes.DEFAULT:
            raise ConfigurationError("authorization-mode and an authorization configuration exclude one another")
        entries = self._read_authorization(text)
        self._others = frozenset(entry.type for entry in entries if entry.type != "Webhook")
        return entries, None

    def _allows_anonymous(self) -> bool:
        """Return whether requests without credentials go on to authorization, which must not allow everything then.

        Upstream: BuiltInAuthenticationOptions.ApplyAuthorization (pkg/kubeapiserver/options).
        """
        if self._config.anonymous_auth and "AlwaysAllow" in self._config.authorization_modes:
            log.warning("anonymous-auth is off: the authorization mode AlwaysAllow would allow every anonymous request")
            return False
        return self._config.anonymous_auth

    def _read_authorization(self, text: bytes) -> tuple[Entry, ...]:
        try:
            return parse_authorization(text, self._others)
        except ConfigurationError as error:
            raise ConfigurationError(f"{self._config.authorization_config_file}: {error}") from error

    def _client(self, path: Path, timeout: float) -> ReviewClient:
        return ReviewClient(path, self._clock, timeout)

    def _token_webhook(self, audiences: Sequence[str]) -> TokenWebhook:
        config = self._config
        assert config.authentication_webhook_file is not None
        client = ReviewClient(config.authentication_webhook_file, self._clock)
        ttl = config.authentication_webhook_cache_ttl
        return TokenWebhook(client, self._clock, audiences, config.authentication_webhook_version, ttl)

    def _verification_keys(self) -> list[pki.PublicKey]:
        path = self._config.service_account_public_key_file
        return pki.decode_public_keys(path.read_bytes()) if path is not None else []

    def _front_proxy(self) -> RequestHeaderAuthenticator | None:
        config = self._config
        if config.requestheader_client_ca_file is None:
            return None
        authorities = _authorities(config.requestheader_client_ca_file)
        headers = request_headers(config)
        return RequestHeaderAuthenticator(authorities, config.requestheader_allowed_names, self._clock, headers)

    # -- following ------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Take over the files' changes until cancelled."""
        async with asyncio.TaskGroup() as group:
            every = self._config.configuration_check
            for file, take in ((self._authentication, self._authenticate), (self._authorization, self._authorize)):
                if file.path is not None:
                    work = functools.partial(file.follow, take, self._clock, every)
                    cancellation.start(group, work, f"follows {file.path.name}")

    async def _authenticate(self, text: bytes) -> None:
        found = self._read_authentication(text)
        assert found.anonymous is not None
        self.auth.replace_issuers(found.issuers)
        self.auth.anonymous = found.anonymous

    async def _authorize(self, text: bytes) -> None:
        before = self.auth.replace_authorizers(self._read_authorization(text), self._client)
        asyncio.get_running_loop().call_later(GRACE, self._close_authorizers, before)

    def _close_authorizers(self, authorizers: Sequence[AsyncAuthorizer]) -> None:
        for authorizer in authorizers:
            if isinstance(authorizer, WebhookAuthorizer):
                task = asyncio.ensure_future(authorizer.close())
                task.set_name("authorization webhook closes")

    async def close(self) -> None:
        """Close the connections to webhooks."""
        if self.auth.token_webhook is not None:
            await self.auth.token_webhook.close()
        for link in self.auth.authorizer.links:
            if isinstance(link.authorizer, WebhookAuthorizer):
                await link.authorizer.close()


def _authorities(path: Path) -> Callable[[], Sequence[x509.Certificate]]:
    """Return a function for the authorities that a file has now. Raises OSError and ValueError if it has none at first."""
    found = FromFiles(lambda: x509.load_pem_x509_certificates(path.read_bytes()), [path])
    found.current()
    return found.current
