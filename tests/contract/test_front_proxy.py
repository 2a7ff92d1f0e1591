"""An authenticating proxy before the server: its headers are accepted only with its own certificate."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from kube import pki
from tests.support.control import ADMIN, ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SAID = {
    "X-Remote-User": "ann",
    "X-Remote-Uid": "u-7",
    "X-Remote-Extra-Acme.example%2fTeam": "blue",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as server:
        yield server


async def who(api: ApiUnderTest, certificate: Path, key: Path, headers: Any) -> tuple[int, Any]:
    context = ssl.create_default_context(cafile=str(api.directory / "pki" / "ca.crt"))
    context.load_cert_chain(certificate, key)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        async with session.post(api.url + WHO, json={}, headers=headers) as answer:
            found = await answer.json()
            return answer.status, found["status"]["userInfo"] if answer.status == 201 else found


def proxy(api: ApiUnderTest, name: str) -> tuple[Path, Path]:
    """Return certificate and key of a proxy that the front-proxy authority signed."""
    keys = api.directory / "pki"
    certificate = pki.decode_certificate((keys / "front-proxy-ca.crt").read_bytes())
    authority = pki.KeyPair(certificate, pki.decode_key((keys / "front-proxy-ca.key").read_bytes()))
    pki.issue(authority, name, usages=(pki.CLIENT,), now=datetime.now(UTC)).save(api.directory, name)
    return api.directory / f"{name}.crt", api.directory / f"{name}.key"


async def test_the_front_proxys_headers_name_the_user(api: ApiUnderTest) -> None:
    headers = [*SAID.items(), ("X-Remote-Group", "dev"), ("X-Remote-Group", "ops")]
    status, user = await who(api, *proxy(api, "front-proxy-client"), headers)
    assert status == 201
    assert user == {
        "username": "ann",
        "uid": "u-7",
        "groups": ["dev", "ops", "system:authenticated"],
        "extra": {"acme.example/team": ["blue"]},
    }


async def test_without_a_user_the_proxy_is_nobody(api: ApiUnderTest) -> None:
    assert (await who(api, *proxy(api, "front-proxy-client"), {}))[0] == 401


async def test_a_proxy_of_another_name_is_not_believed(api: ApiUnderTest) -> None:
    assert (await who(api, *proxy(api, "another"), SAID))[0] == 401


async def test_request_headers_of_other_clients_are_ignored(api: ApiUnderTest) -> None:
    status, user = await who(api, *api.certificate("jane", ("dev",)), {**SAID, "X-Remote-Group": "system:masters"})
    assert status == 201
    assert (user["username"], user["groups"]) == ("jane", ["dev", "system:authenticated"])
    refused = await api.request("POST", WHO, {}, user=("", ()), headers=SAID)
    assert refused.status == 401


async def test_extension_servers_get_the_same_headers(api: ApiUnderTest) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    data = (await api.request("GET", path, user=ADMIN)).json["data"]
    assert data["client-ca-file"] == (api.directory / "pki" / "ca.crt").read_text()
    assert data["requestheader-client-ca-file"] == (api.directory / "pki" / "front-proxy-ca.crt").read_text()
    assert json.loads(data["requestheader-allowed-names"]) == ["front-proxy-client"]
    lists = {key: json.loads(value) for key, value in data.items() if "header" in key and value.startswith("[")}
    assert lists["requestheader-username-headers"] == ["X-Remote-User"]
    assert lists["requestheader-uid-headers"] == ["X-Remote-Uid"]
    assert lists["requestheader-group-headers"] == ["X-Remote-Group"]
    assert lists["requestheader-extra-headers-prefix"] == ["X-Remote-Extra-"]
