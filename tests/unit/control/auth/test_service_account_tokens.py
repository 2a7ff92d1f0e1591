from __future__ import annotations

import base64
import tracemalloc
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from control.auth import secret_tokens
from control.auth.service_account_names import split_username
from control.auth.service_account_tokens import ServiceAccountAuthenticator
from control.auth.token_claims import make_claims
from control.auth.token_request import token_request
from control.auth.token_signer import ISSUER, TokenSigner
from control.auth.user import Credentials, UserInfo
from kube import pki
from kube.bounded_cache import forget_all
from kube.clock import parse_time
from kube.errors import StatusError
from tests.support.clock import FakeClock
from tests.support.lookup import Objects


class World:
    def __init__(self, key: pki.PrivateKey | None = None) -> None:
        self.clock = FakeClock()
        self.account = {"metadata": {"name": "web", "namespace": "shop", "uid": "sa-1"}}
        self.pod: dict[str, Any] = {
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "pod-1"},
            "spec": {"serviceAccountName": "web", "nodeName": "n1"},
        }
        node = {"metadata": {"name": "n1", "uid": "node-1"}}
        self.objects = Objects(("serviceaccounts", self.account), ("pods", self.pod), ("nodes", node))
        self.signer = TokenSigner(key or pki.new_key())
        self.accounts = ServiceAccountAuthenticator(self.signer, self.objects.get, self.clock)

    def request(self, extend: bool = True, **spec: Any) -> dict[str, Any]:
        request = {"spec": spec}
        return token_request(
            self.accounts, self.signer, self.objects.get, self.clock, self.account, request, extend=extend
        )

    def for_pod(self, **spec: Any) -> str:
        ref = {"kind": "Pod", "apiVersion": "v1", "name": "web-1", "uid": "pod-1"}
        token: str = self.request(boundObjectRef=ref, **spec)["status"]["token"]
        return token

    async def who(self, token: str) -> UserInfo | None:
        return await self.accounts.authenticate(Credentials(token=token))

    async def refused(self, token: str) -> None:
        with pytest.raises(StatusError) as caught:
            await self.who(token)
        assert caught.value.code == 401


@pytest.fixture(params=["ec", "rsa"])
def world(request: pytest.FixtureRequest) -> World:
    return World(rsa.generate_private_key(65537, 2048) if request.param == "rsa" else None)


async def test_a_pods_token_authenticates_its_account_with_pod_and_node(world: World) -> None:
    user = await world.who(world.for_pod())
    assert user is not None
    assert (user.name, user.uid) == ("system:serviceaccount:shop:web", "sa-1")
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
    prefix = "authentication.kubernetes.io/"
    assert user.extra[prefix + "pod-name"] == ("web-1",) and user.extra[prefix + "pod-uid"] == ("pod-1",)
    assert user.extra[prefix + "node-name"] == ("n1",) and user.extra[prefix + "node-uid"] == ("node-1",)
    assert user.extra[prefix + "credential-id"][0].startswith("JTI=")


async def test_a_token_ends_with_its_time(world: World) -> None:
    made = world.request(expirationSeconds=600)
    token = made["status"]["token"]
    assert parse_time(made["status"]["expirationTimestamp"]) == world.clock.now().replace(minute=10)
    assert await world.who(token) is not None
    await world.clock.advance(659)
    assert await world.who(token) is not None, "clocks differ by up to a minute"
    await world.clock.advance(2)
    await world.refused(token)


async def test_a_token_works_on_a_server_whose_clock_is_up_to_a_minute_behind(world: World) -> None:
    token = world.for_pod()
    world.clock.step(-59)
    assert await world.who(token) is not None
    world.clock.step(-2)
    await world.refused(token)


@pytest.mark.parametrize("target, name", [("pods", "web-1"), ("serviceaccounts", "web")])
async def test_a_token_ends_with_what_it_is_bound_to(target: str, name: str) -> None:
    world = World()
    token = world.for_pod()
    assert await world.who(token) is not None
    world.objects.remove(target, "shop", name)
    await world.refused(token)
    world.objects.put(target, {"metadata": {"name": name, "namespace": "shop", "uid": "another"}, "spec": {}})
    await world.refused(token)


async def test_a_deleted_pods_token_works_a_minute_longer(world: World) -> None:
    token = world.for_pod()
    world.pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    await world.clock.advance(80)
    assert await world.who(token) is not None
    await world.clock.advance(30)
    await world.refused(token)


async def test_a_token_for_another_audience_opens_nothing_here_but_reviews_there(world: World) -> None:
    token = world.for_pod(audiences=["vault"])
    await world.refused(token)
    found = world.accounts.review(token, ["vault", "x"])
    assert found is not None and found[1] == ["vault"]


async def test_tokens_of_other_issuers_are_not_ours_and_forged_ones_are_refused(world: World) -> None:
    foreign = TokenSigner(pki.new_key(), "https://elsewhere")
    claims = make_claims(foreign.issuer, world.account, [ISSUER], world.clock.now(), 3600)
    assert await world.who(foreign.sign(claims)) is None
    forged = TokenSigner(pki.new_key())
    await world.refused(forged.sign(make_claims(ISSUER, world.account, [ISSUER], world.clock.now(), 3600)))
    none = jwt.encode(make_claims(ISSUER, world.account, [ISSUER], world.clock.now(), 3600), None, "none")  # type: ignore[arg-type]
    await world.refused(none)


async def test_the_public_key_used_as_an_hmac_secret_signs_nothing(world: World) -> None:
    import hashlib
    import hmac
    import json

    claims = make_claims(ISSUER, world.account, [ISSUER], world.clock.now(), 3600)
    parts = [base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=") for p in ({"alg": "HS256"}, claims)]
    public = next(iter(world.signer._public.values()))
    mac = hmac.new(pki.encode_public_key(public), b".".join(parts), hashlib.sha256).digest()
    await world.refused(b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode())


async def test_a_rotated_keys_tokens_stay_good(world: World) -> None:
    token = world.for_pod()
    old = [k for k in world.signer._public.values()]
    renewed = TokenSigner(pki.new_key(), ISSUER, old)
    accounts = ServiceAccountAuthenticator(renewed, world.objects.get, world.clock)
    assert await accounts.authenticate(Credentials(token=token)) is not None


async def test_kubelet_requested_tokens_are_valid_for_a_year_and_contain_warnafter_if_extended(world: World) -> None:
    token = world.for_pod(expirationSeconds=3607)
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
    exact = jwt.decode(world.for_pod(expirationSeconds=3607, extend=False), options={"verify_signature": False})
    assert exact["exp"] - exact["iat"] == 3607 and "warnafter" not in exact["kubernetes.io"]
    short = jwt.decode(world.for_pod(expirationSeconds=3607, audiences=["vault"]), options={"verify_signature": False})
    assert short["exp"] - short["iat"] == 3607 and "warnafter" not in short["kubernetes.io"]


async def test_the_published_key_set_verifies_the_tokens(world: World) -> None:
    keys = jwt.PyJWKSet.from_dict(world.signer.jwks())
    token = world.for_pod()
    key = keys[jwt.get_unverified_header(token)["kid"]]
    found = jwt.decode(
        token,
        key,
        audience=ISSUER,
        issuer=ISSUER,
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False},
    )
    assert found["sub"] == "system:serviceaccount:shop:web"
    assert world.signer.discovery()["issuer"] == ISSUER


@pytest.mark.parametrize(
    "spec, code, message",
    [
        ({"expirationSeconds": 599}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 2**32 + 1}, 422, "may not specify a duration larger than 2^32 seconds"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "gone"}}, 404, 'pods "gone" not found'),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "web-1", "uid": "x"}}, 409, "does not match"),
        ({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}, 400, "type /v1, Kind=ConfigMap"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "other"}}, 400, "different serviceaccount"),
    ],
)
def test_invalid_token_requests_are_rejected_with_the_reason(spec: dict[str, Any], code: int, message: str) -> None:
    world = World()
    world.objects.put(
        "pods", {"metadata": {"name": "other", "namespace": "shop"}, "spec": {"serviceAccountName": "default"}}
    )
    with pytest.raises(StatusError) as caught:
        world.request(**spec)
    assert caught.value.code == code and message in caught.value.message


async def test_a_token_kept_in_a_secret_is_good_while_the_secret_holds_it(world: World) -> None:
    token = world.signer.sign(secret_tokens.make_claims("shop", "web", "sa-1", "web-token"))
    await world.refused(token)
    secret = {
        "metadata": {"name": "web-token", "namespace": "shop"},
        "type": "kubernetes.io/service-account-token",
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }
    world.objects.put("secrets", secret)
    user = await world.who(token)
    assert user is not None and user.name == "system:serviceaccount:shop:web"
    found = world.accounts.review(token, [ISSUER, "vault"])
    assert found is not None and found[1] == [ISSUER]
    with pytest.raises(StatusError):
        world.accounts.review(token, ["vault"])
    for change in ({"type": "Opaque"}, {"data": {"token": base64.b64encode(b"other").decode()}}):
        world.objects.put("secrets", secret | change)
        await world.refused(token)
    world.objects.put("secrets", secret)
    world.account["metadata"]["uid"] = "another"
    await world.refused(token)


def verifications(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the tokens whose signatures are verified from here on."""
    verified: list[str] = []
    verify = world.signer.verify

    def verifying(token: str) -> dict[str, Any] | None:
        verified.append(token)
        return verify(token)

    monkeypatch.setattr(world.signer, "verify", verifying)
    return verified


async def test_a_signature_is_verified_once_until_caches_are_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    token, verified = world.for_pod(), verifications(world, monkeypatch)
    for _ in range(3):
        assert await world.who(token) is not None
    assert len(verified) == 1
    forget_all()
    assert await world.who(token) is not None
    assert len(verified) == 2


async def test_tokens_of_other_audiences_and_refused_and_long_ones_are_not_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    long = world.for_pod(audiences=[ISSUER, *(f"{n:x<64}" for n in range(63))])
    expired, other = world.for_pod(expirationSeconds=600), world.for_pod(audiences=["vault"])
    await world.clock.advance(661)
    verified = verifications(world, monkeypatch)
    for _ in range(2):
        assert await world.who(long) is not None
        assert world.accounts.review(other, ["vault"]) is not None
        await world.refused(expired)
        await world.refused(other)
    assert sorted(verified) == sorted([long, other, expired, other] * 2)


async def test_a_cached_token_still_has_its_other_audiences_in_reviews() -> None:
    world = World()
    token = world.for_pod(audiences=[ISSUER, "vault", "x"])
    for _ in range(2):
        assert await world.who(token) is not None
        for requested, shared in ((["vault", "y"], ["vault"]), ([ISSUER], [ISSUER]), (["x", ISSUER], ["x", ISSUER])):
            found = world.accounts.review(token, requested)
            assert found is not None and found[1] == shared
        with pytest.raises(StatusError):
            world.accounts.review(token, ["y"])


async def test_a_cached_token_takes_two_and_a_half_kilobytes_whatever_its_audiences() -> None:
    world = World()
    tokens = [world.for_pod(audiences=[ISSUER, *(f"audience-{n}" for n in range(63))]) for _ in range(200)]
    assert await world.who(tokens.pop()) is not None
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for token in tokens:
            assert await world.who(token) is not None
        taken = (tracemalloc.get_traced_memory()[0] - before) / len(tokens)
    finally:
        tracemalloc.stop()
    assert taken < 2560


@pytest.mark.parametrize(
    "audiences, message",
    [
        ([str(n) for n in range(65)], "spec.audiences: Too many: 65: must have at most 64 items"),
        (["é" * 700, "b" * 4000], "spec.audiences: Too long: may not be more than 8192 bytes"),
    ],
)
def test_too_many_or_long_audiences_are_refused(audiences: list[str], message: str) -> None:
    world = World()
    with pytest.raises(StatusError) as caught:
        world.request(audiences=audiences)
    assert caught.value.code == 422 and message in caught.value.message


@pytest.mark.parametrize("audiences", [["x" * 8188], [f"{n:a<124}" for n in range(64)], ["é" * 1364]])
async def test_a_token_of_the_most_audiences_can_be_reviewed(audiences: list[str]) -> None:
    world = World()
    found = world.accounts.review(world.for_pod(audiences=audiences), audiences)
    assert found is not None and found[1] == audiences


def test_account_user_names_are_taken_apart_strictly() -> None:
    assert split_username("system:serviceaccount:a:b") == ("a", "b")
    for name in ("a:b", "system:serviceaccount:a", "system:serviceaccount:a:", "system:serviceaccount:a:b:c"):
        assert split_username(name) is None
