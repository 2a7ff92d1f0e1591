"""Addresses that API servers had: no node gets a certificate for them without a person, as clients still use them."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import pytest

from control.controllers.certificates import approver
from control.server_tasks.bootstrap import Bootstrap
from kube import pki
from kube.api import certificates_v1
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually

OLD, NEW, OWN = "192.0.2.5", "192.0.2.6", "192.0.2.77"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RECORD = "/api/v1/namespaces/kube-system/configmaps/wherry-api-servers"
EVIL = ("system:node:evil", ("system:nodes",))


async def recorded(server: ApiUnderTest) -> list[str]:
    answer = await server.request("GET", RECORD)
    assert answer.status == 200
    return list(answer.json["data"]["names"].splitlines())


async def register(server: ApiUnderTest, *addresses: str) -> None:
    """Create Node evil, and have it say of itself that it has these addresses."""
    found = [{"type": "InternalIP", "address": address} for address in addresses]
    assert (await server.request("POST", "/api/v1/nodes", {"metadata": {"name": "evil"}}, user=EVIL)).status == 201
    patch = json.dumps({"status": {"addresses": [*found, {"type": "Hostname", "address": "evil"}]}}).encode()
    headers = {"Content-Type": "application/merge-patch+json"}
    path = "/api/v1/nodes/evil/status"
    assert (await server.request("PATCH", path, patch, headers=headers, user=EVIL)).status == 200


async def requested(server: ApiUnderTest, name: str, *sans: str) -> None:
    pem = pki.kubelet_serving_request(pki.new_key(), "evil", sans)
    spec = {
        "request": base64.b64encode(pem).decode(),
        "signerName": "kubernetes.io/kubelet-serving",
        "usages": ["digital signature", "server auth"],
    }
    body = {"metadata": {"name": name}, "spec": spec}
    assert (await server.request("POST", REQUESTS, body, user=EVIL)).status == 201


async def approved(server: ApiUnderTest, name: str) -> bool:
    found = await server.client().get(certificates_v1.CertificateSigningRequest, name)
    return any(condition.type == "Approved" for condition in found.status.conditions)


async def test_a_node_gets_no_certificate_for_the_address_that_an_api_server_had_until_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(approver, "LOOK_AGAIN_SECONDS", 0.2)
    async with api_server(tmp_path, advertise_address=OLD) as server:
        assert OLD in await recorded(server)
    async with api_server(tmp_path, advertise_address=NEW, enable_controllers=True) as server:
        assert {OLD, NEW} <= set(await recorded(server))
        await register(server, OLD, OWN)
        with caplog.at_level(logging.INFO):
            await requested(server, "old", OLD, OWN)
            await requested(server, "own", OWN)
            await eventually(lambda: approved(server, "own"))
            await eventually(lambda: _logged(caplog, f"old of node evil is not approved: {OLD} is or was an address"))
        assert not await approved(server, "old")
        body = json.dumps({"data": {"names": NEW}}).encode()
        headers = {"Content-Type": "application/merge-patch+json"}
        assert (await server.request("PATCH", RECORD, body, headers=headers)).status == 200
        await eventually(lambda: approved(server, "old"))


async def _logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return any(text in record.getMessage() for record in caplog.records)


async def test_the_addresses_of_all_members_are_recorded_and_stay_when_one_is_gone(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        bootstrap = Bootstrap(server.api.registry, server.api.config, 6443)
        await bootstrap.endpoints([OLD, NEW])
        before = await recorded(server)
        assert before[:2] == [OLD, NEW]
        await bootstrap.endpoints([NEW])
        assert await recorded(server) == before
        await bootstrap.endpoints([OWN])
        assert await recorded(server) == [*before, OWN]


async def test_the_names_of_a_members_certificate_are_recorded_without_those_that_nobody_gets(tmp_path: Path) -> None:
    async with api_server(tmp_path, advertise_address=OLD) as server:
        assert await recorded(server) == [OLD, "10.96.0.1"]


async def test_a_server_starts_though_a_webhook_that_is_away_must_admit_the_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}
    webhook = {
        "name": "away.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    body = {"metadata": {"name": "away"}, "webhooks": [webhook]}
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    async with api_server(tmp_path, advertise_address=OLD) as server:
        assert (await server.request("POST", configurations, body)).status == 201
    with caplog.at_level(logging.WARNING):
        async with api_server(tmp_path, advertise_address=NEW) as server:
            assert NEW not in await recorded(server)
            assert (await server.request("DELETE", f"{configurations}/away")).status == 200
    assert await _logged(caplog, "the addresses of the API servers cannot be recorded")
    async with api_server(tmp_path, advertise_address=NEW) as server:
        assert NEW in await recorded(server)
