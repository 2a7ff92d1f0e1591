"""ID tokens of an issuer outside the cluster, and static tokens, over the wire."""

import asyncio
import hmac
import json
import re
import ssl
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from control.auth import oidc
from control.auth.encoding import base64url
from control.event_loop import inline
from kube.clock import SYSTEM
from tests.support.control import ApiUnderTest, api_server
from tests.support.issuer import IssuerServer, issuer

pytestmark = pytest.mark.asyncio(loop_scope="module")
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[ApiUnderTest, IssuerServer]]:
    directory = tmp_path_factory.mktemp("api")
    async with issuer(directory) as outside:
        entry = {
            "issuer": {"url": outside.url, "certificateAuthority": outside.authority, "audiences": ["wherry"]},
            "claimValidationRules": [
                {"claim": "org", "requiredValue": "acme"},
                {"expression": "!has(claims.banned)", "message": "banned"},
                {"expression": "!has(claims.many) || claims.many.all(a, claims.many.all(b, a + b >= 0))"},
            ],
            "userValidationRules": [{"expression": "!user.groups.exists(g, g.endsWith(':root'))"}],
            "claimMappings": {
                "username": {"claim": "email", "prefix": "oidc:"},
                "groups": {"claim": "roles", "prefix": "acme:"},
                "uid": {"expression": "claims.sub + '@' + claims.org"},
                "extra": [{"key": "acme.example/team", "valueExpression": "claims.?team.orValue([])"}],
            },
        }
        configuration = directory / "authentication.yaml"
        configuration.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "AuthenticationConfiguration",
                    "jwt": [entry],
                    "anonymous": {"enabled": True, "conditions": [{"path": "/livez"}]},
                }
            )
        )
        tokens = directory / "tokens.csv"
        tokens.write_text('s3cret,robot,r1,"builders,testers"\n')
        async with api_server(directory, authentication_config_file=configuration, token_file=tokens) as api:
            yield api, outside


async def who(api: ApiUnderTest, token: str) -> tuple[int, Any]:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    headers = {"Authorization": f"Bearer {token}"}
    answer = await api.request("POST", REVIEW, body, user=("", ()), headers=headers)
    return answer.status, answer.json["status"]["userInfo"] if answer.status == 201 else None


def good(outside: IssuerServer, **claims: Any) -> str:
    return outside.token(**({"email": "jane@acme.example", "roles": ["dev"], "org": "acme"} | claims))


async def test_a_token_of_the_issuer_is_its_user(server: tuple[ApiUnderTest, IssuerServer]) -> None:
    api, outside = server
    status, user = await who(api, good(outside))
    assert status == 201
    assert (user["username"], user["uid"]) == ("oidc:jane@acme.example", "jane@acme")
    assert user["groups"] == ["acme:dev", "system:authenticated"]
    assert "extra" not in user
    assert (await who(api, good(outside, team=["a", "b"])))[1]["extra"] == {"acme.example/team": ["a", "b"]}
    fetched = outside.fetched
    assert (await who(api, good(outside, roles="ops")))[1]["groups"] == ["acme:ops", "system:authenticated"]
    assert outside.fetched == fetched


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "somebody-else"},
        {"aud": None},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"nbf": 9_000_000_000},  # far away: this is read when the tests are collected
        {"org": "rival"},
        {"org": None},
        {"email": None},
        {"email_verified": False},
        {"roles": [1]},
        {"roles": ["root"]},
        {"banned": True},
        {"iss": "https://127.0.0.1:1"},
    ],
)
async def test_other_tokens_are_refused(server: tuple[ApiUnderTest, IssuerServer], claims: dict[str, Any]) -> None:
    api, outside = server
    assert (await who(api, good(outside, **claims)))[0] == 401


async def test_a_token_works_up_to_a_minute_before_its_time(server: tuple[ApiUnderTest, IssuerServer]) -> None:
    api, outside = server
    assert (await who(api, good(outside, nbf=int(time.time()) + 45)))[0] == 201
    assert (await who(api, good(outside, nbf=int(time.time()) + 75)))[0] == 401


async def test_expressions_that_cost_much_are_evaluated_beside_the_event_loop(
    server: tuple[ApiUnderTest, IssuerServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, outside = server
    costs, original = {"loop": 0, "thread": 0}, inline.spent

    def spent(cost: int) -> None:
        costs["loop" if threading.current_thread() is threading.main_thread() else "thread"] += cost
        original(cost)

    monkeypatch.setattr(inline, "spent", spent)
    assert (await who(api, good(outside)))[0] == 201
    assert costs["thread"] == 0 and costs["loop"] < inline.MOST
    assert (await who(api, good(outside, many=list(range(100)))))[0] == 201
    assert costs["thread"] > 10 * inline.MOST and costs["loop"] < 3 * inline.MOST
    assert (await who(api, good(outside, many=[*range(100), -200])))[0] == 401


async def test_a_document_of_the_issuer_that_is_too_long_is_not_read(
    server: tuple[ApiUnderTest, IssuerServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "DOCUMENT_LIMIT", 10)
    url, authority = server[1].url, server[1].authority
    known = oidc.Issuer(url, ("wherry",), oidc.ClaimMapping("sub"), authority=authority)
    with pytest.raises(oidc.IssuerAway, match="the answer is longer than 10 bytes"):
        await oidc.KeySet(known, SYSTEM).find("k1")


async def test_nobody_else_can_sign(server: tuple[ApiUnderTest, IssuerServer]) -> None:
    api, outside = server
    assert (await who(api, good(outside, key=rsa.generate_private_key(65537, 2048))))[0] == 401
    # The public key as the secret of a symmetric algorithm. PyJWT would not make such a token.
    public = outside.key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.PKCS1)
    header = base64url(json.dumps({"alg": "HS256", "kid": outside.key_id}).encode())
    signed = f"{header}.{good(outside).split('.')[1]}"
    forged = f"{signed}.{base64url(hmac.digest(public, signed.encode(), 'sha256'))}"
    assert (await who(api, forged))[0] == 401
    assert (await who(api, good(outside) + "x"))[0] == 401


@pytest.mark.parametrize("algorithm", ["RS384", "PS256", "ES256", "ES512", "EdDSA", "HS256", "none", "", None, 5, {}])
async def test_a_token_that_names_another_algorithm_than_its_signatures_is_refused(
    server: tuple[ApiUnderTest, IssuerServer], algorithm: object
) -> None:
    api, outside = server
    header = base64url(json.dumps({"alg": algorithm, "kid": outside.key_id}).encode())
    assert (await who(api, ".".join((header, *good(outside).split(".")[1:]))))[0] == 401


async def test_keys_that_rotate_are_fetched_again(
    server: tuple[ApiUnderTest, IssuerServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, outside = server
    old = good(outside)
    assert (await who(api, old))[0] == 201
    monkeypatch.setattr(oidc, "FETCH_SECONDS", 0.0)
    outside.rotate("k2")
    assert (await who(api, good(outside)))[0] == 201
    assert (await who(api, old))[0] == 401


async def test_static_tokens_and_who_may_be_anonymous(server: tuple[ApiUnderTest, IssuerServer]) -> None:
    api, _ = server
    status, user = await who(api, "s3cret")
    assert status == 201 and user["username"] == "robot" and user["groups"][:2] == ["builders", "testers"]
    assert (await api.request("GET", "/livez", user=("", ()))).status == 200
    assert (await api.request("GET", "/readyz", user=("", ()))).status == 401


@pytest.mark.parametrize(("tokens", "status"), [(("s3cret", "none"), 201), (("none", "s3cret"), 401)])
async def test_of_repeated_headers_the_first_counts(
    server: tuple[ApiUnderTest, IssuerServer], tokens: tuple[str, ...], status: int
) -> None:
    """As to upstream: a proxy that adds a header behind a client's would be read differently."""
    api, _ = server
    context = ssl.create_default_context(cafile=str(api.directory / "pki" / "ca.crt"))
    headers = [("Authorization", f"Bearer {token}") for token in tokens]
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.post(api.url + REVIEW, json={}, headers=headers) as answer,
    ):
        assert answer.status == status


async def test_service_accounts_still_work_beside_an_issuer(server: tuple[ApiUnderTest, IssuerServer]) -> None:
    api, _ = server
    account = {"metadata": {"name": "app"}}
    await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
    made = await api.request("POST", "/api/v1/namespaces/default/serviceaccounts/app/token", {"spec": {}})
    status, user = await who(api, json.loads(made.body)["status"]["token"])
    assert status == 201 and user["username"] == "system:serviceaccount:default:app"


async def test_a_changed_file_holds_at_once_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    async with issuer(tmp_path) as outside:
        file = tmp_path / "authentication.yaml"

        def write(prefix: str, path: str, url: str = outside.url) -> None:
            entry = {
                "issuer": {"url": url, "certificateAuthority": outside.authority, "audiences": ["wherry"]},
                "claimMappings": {"username": {"claim": "email", "prefix": prefix}},
            }
            document = {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AuthenticationConfiguration",
                "jwt": [entry],
                "anonymous": {"enabled": True, "conditions": [{"path": path}]},
            }
            file.write_text(yaml.safe_dump(document))

        write("a:", "/livez")
        async with api_server(tmp_path, authentication_config_file=file, configuration_check=0.02) as api:

            async def name_becomes(wanted: str) -> None:
                async with asyncio.timeout(30):
                    while (await who(api, good(outside)))[1]["username"] != wanted:
                        await asyncio.sleep(0.02)

            await name_becomes("a:jane@acme.example")
            assert (await api.request("GET", "/version", user=("", ()))).status == 401
            write("bb:", "/version")
            await name_becomes("bb:jane@acme.example")
            assert (await api.request("GET", "/version", user=("", ()))).status == 200, "known as anonymous, who may"
            assert (await api.request("GET", "/livez", user=("", ()))).status == 401
            write("ccc:", "/livez", url="http://insecure.example")
            metric = 'apiserver_authentication_config_controller_automatic_reloads_total{.*,status="failure"}'
            async with asyncio.timeout(30):
                while not re.search(metric, (await api.request("GET", "/metrics")).body.decode()):
                    await asyncio.sleep(0.02)
            await name_becomes("bb:jane@acme.example")
