from __future__ import annotations

import base64
import hmac
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from control.auth import setup
from control.auth.authenticators import ANONYMOUS_USER, AnonymousPolicy
from control.auth.static_tokens import StaticTokenAuthenticator, bootstrap_groups
from control.auth.user import Credentials, UserInfo
from kube import pki
from kube.clock import format_time
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.lookup import Objects


class World:
    """An Auth over a handful of objects, with a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.objects = Objects()
        self.ca = pki.new_ca("kubernetes", self.clock.now())
        self.auth = setup.build(
            client_authorities=lambda: [self.ca.certificate],
            service_account_key=pki.new_key(),
            lookup=self.objects.get,
            clock=self.clock,
            static_tokens='s3cret,jane,u1,"dev,ops"\n',
        )

    async def who(self, token: str | None = None, certificate: bytes | None = None) -> UserInfo | None:
        return await self.auth.authenticator.authenticate(Credentials(certificate, token))

    async def refused(self, **credentials: Any) -> None:
        with pytest.raises(StatusError) as caught:
            await self.who(**credentials)
        assert (caught.value.code, caught.value.message) == (401, "Unauthorized")


@pytest.fixture
def world() -> World:
    return World()


def der(pair: pki.KeyPair) -> bytes:
    return pair.certificate.public_bytes(serialization.Encoding.DER)


async def test_a_client_certificates_subject_is_the_user(world: World) -> None:
    pair = pki.issue(world.ca, "jane", ("dev", "ops"), now=world.clock.now())
    user = await world.who(certificate=der(pair))
    assert user is not None
    assert (user.name, user.groups) == ("jane", ("dev", "ops", "system:authenticated"))
    assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")


async def test_certificates_of_other_authorities_for_servers_or_out_of_date_are_refused(world: World) -> None:
    now = world.clock.now()
    stranger = pki.issue(pki.new_ca("kubernetes", now), "admin", ("system:masters",), now=now)
    server = pki.issue(world.ca, "admin", ("system:masters",), usages=(pki.SERVER,), now=now)
    nobody = pki.issue(world.ca, "", ("system:masters",), now=now)
    for pair in (stranger, server, nobody):
        await world.refused(certificate=der(pair))
    brief = pki.issue(world.ca, "jane", now=now, lifetime=timedelta(hours=1))
    assert await world.who(certificate=der(brief)) is not None
    await world.clock.advance(3601)
    await world.refused(certificate=der(brief))


async def test_no_credentials_are_nobody_and_unknown_tokens_are_refused(world: World) -> None:
    assert await world.who() is None
    for token in ("", "guess", "abcdef.0123456789abcdef", "a.b.c", "s3cre", "s3cret1"):
        await world.refused(token=token)


async def test_a_token_from_the_file_is_its_user(world: World) -> None:
    assert await world.who(token="s3cret") == UserInfo("jane", "u1", ("dev", "ops", "system:authenticated"))


def test_a_token_file_without_uid_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 columns"):
        StaticTokenAuthenticator("token,jane\n")


def test_anonymous_users_reach_health_alone_unless_allowed_more() -> None:
    policy = AnonymousPolicy()
    assert policy.user("/readyz") == ANONYMOUS_USER
    assert policy.user("/api/v1/pods") is None and policy.user("/healthz/../api") is None
    assert AnonymousPolicy(paths=None).user("/api") == ANONYMOUS_USER
    assert AnonymousPolicy(enabled=False).user("/livez") is None


# -- bootstrap tokens -------------------------------------------------------------------------------------------------
def bootstrap_secret(**data: str) -> dict[str, Any]:
    values = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
    } | data
    return {
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "data": {k: base64.b64encode(v.encode()).decode() for k, v in values.items() if v},
    }


TOKEN = "abcdef.0123456789abcdef"


async def test_a_bootstrap_token_is_a_user_of_its_groups(world: World) -> None:
    world.objects.put("secrets", bootstrap_secret())
    user = await world.who(token=TOKEN)
    assert user is not None and user.name == "system:bootstrap:abcdef"
    assert set(user.groups) == {
        "system:bootstrappers",
        "system:bootstrappers:kubeadm:default-node-token",
        "system:authenticated",
    }


async def test_an_expiring_bootstrap_token_works_until_it_expires(world: World) -> None:
    end = format_time(world.clock.now() + timedelta(minutes=10))
    world.objects.put("secrets", bootstrap_secret(expiration=end))
    assert await world.who(token=TOKEN) is not None
    await world.clock.advance(600)
    await world.refused(token=TOKEN)


@pytest.mark.parametrize(
    "change",
    [
        {"token-secret": "0123456789abcdee"},
        {"token-id": "abcdeg"},
        {"usage-bootstrap-authentication": ""},
        {"usage-bootstrap-authentication": "false"},
        {"expiration": "soon"},
        {"auth-extra-groups": "system:masters"},
    ],
)
async def test_an_unsuitable_bootstrap_secret_authenticates_nobody(world: World, change: dict[str, str]) -> None:
    world.objects.put("secrets", bootstrap_secret(**change))
    await world.refused(token=TOKEN)


async def test_bootstrap_secrets_of_another_type_or_being_deleted_let_nobody_in(world: World) -> None:
    world.objects.put("secrets", bootstrap_secret() | {"type": "Opaque"})
    await world.refused(token=TOKEN)
    secret = bootstrap_secret()
    secret["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.objects.put("secrets", secret)
    await world.refused(token=TOKEN)


async def test_secrets_are_compared_in_constant_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    world.objects.put("secrets", bootstrap_secret())
    await world.refused(token="abcdef.0000000000000000")
    assert (b"0123456789abcdef", b"0000000000000000") in compared


def test_bootstrap_groups_stay_below_their_prefix() -> None:
    assert bootstrap_groups(bootstrap_secret(**{"auth-extra-groups": ""})) == ("system:bootstrappers",)
    assert bootstrap_groups(bootstrap_secret(**{"auth-extra-groups": "system:bootstrappers:A"})) is None
