"""Upstream's conformance tests of webhooks, signing requests, issuers and kubectl's proxy (docs/conformance.md)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube.json_object import Object
from tests.support.conformance_site import JSON_PATCH, MERGE, Site, place, site, template
from tests.support.hollow import eventually
from tests.support.webhook import Webhook, patching, webhook

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site(tmp_path_factory.mktemp("conformance-extensions")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hook(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Webhook]:
    async with webhook(tmp_path_factory.mktemp("hook")) as running:
        running.answers["/deny"] = lambda request: {"allowed": False, "status": {"message": "not this one"}}
        running.answers["/add"] = patching({"op": "add", "path": "/data", "value": {"added": "yes"}})
        yield running


def configured(name: str, namespace: str, client: Object, resource: str, *operations: str, **more: Any) -> Object:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": list(operations), "resources": [resource]}
    entry = {
        "name": f"{name}.example.com",
        "clientConfig": client,
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        **more,
    }
    return {"metadata": {"name": name, "labels": {"set": namespace}}, "webhooks": [entry]}


async def settled(at: Site, namespace: str, holds: Any) -> None:
    """Create ConfigMaps until the answer is as wanted: configurations take effect a moment after they are written."""

    async def tried() -> bool:
        body = {"metadata": {"generateName": "c-"}}
        return bool(holds(*await at.send("POST", place("configmaps", namespace), body)))

    await eventually(tried)


async def test_configurations_are_listed_changed_and_swept(at: Site, hook: Webhook) -> None:
    namespace = await at.namespace()
    for plural, path, works in (
        (
            "validatingwebhookconfigurations",
            "/deny",
            lambda code, o: code == 400 and "denied the request: not this one" in o["message"],
        ),
        ("mutatingwebhookconfigurations", "/add", lambda code, o: code == 201 and o.get("data") == {"added": "yes"}),
    ):
        for name in ("a", "b"):
            await at.post(place(plural), configured(name, namespace, hook.client(path), "configmaps", "CREATE"))
        labelled = place(plural, "", labelSelector=f"set={namespace}")
        assert len(await at.items(labelled)) == 2
        await settled(at, namespace, works)
        await at.delete(place(plural, "", "b"))
        one = place(plural, "", "a")
        await at.change(one, lambda o: o["webhooks"][0]["rules"][0].update(operations=["UPDATE"]))
        await settled(at, namespace, lambda code, o: code == 201 and "data" not in o)
        await at.patch(
            one, [{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}], JSON_PATCH
        )
        await settled(at, namespace, works)
        await at.delete(labelled)
        await settled(at, namespace, lambda code, o: code == 201 and "data" not in o)


async def test_attaching_is_denied_by_a_webhook(at: Site, hook: Webhook) -> None:
    namespace = await at.namespace()
    await at.post(place("pods", namespace), {"metadata": {"name": "p"}, "spec": template({})["spec"]})
    await at.settles(place("pods", namespace, "p"), lambda o: o["status"].get("phase") == "Running")
    configurations = place("validatingwebhookconfigurations")
    await at.post(configurations, configured("attach", namespace, hook.client("/deny"), "pods/attach", "CONNECT"))
    attach = place("pods", namespace, "p", "attach", container="c", stdout="true")

    async def denied() -> bool:
        code, answer = await at.send("POST", attach)
        return code == 400 and "denied the request: not this one" in answer["message"]

    await eventually(denied)
    asked = [request for path, request in hook.received if request["operation"] == "CONNECT"][-1]
    assert (asked["subResource"], asked["name"]) == ("attach", "p")
    kind = {"apiVersion": "v1", "kind": "PodAttachOptions"}
    assert asked["object"] == {**kind, "stdout": True, "container": "c"}  # a client decodes it: a flag is no text
    await at.delete(f"{configurations}/attach")


async def test_webhooks_see_the_options_of_all_that_connects(at: Site, hook: Webhook) -> None:
    namespace = await at.namespace()
    await at.post(place("pods", namespace), {"metadata": {"name": "p"}, "spec": template({})["spec"]})
    await at.settles(place("pods", namespace, "p"), lambda o: o["status"].get("phase") == "Running")
    configurations = place("validatingwebhookconfigurations")
    for part in ("exec", "portforward", "proxy"):
        await at.post(configurations, configured(part, namespace, hook.client("/deny"), f"pods/{part}", "CONNECT"))

    async def object_of(part: str, path: str) -> Any:
        async def denied() -> bool:
            return "denied the request" in (await at.send("POST", path))[1].get("message", "")

        await eventually(denied)
        return [request["object"] for _, request in hook.received if request.get("subResource") == part][-1]

    command = place("pods", namespace, "p", "exec", container="c", stdin="1", tty="false") + "&command=sh&command=-c"
    assert await object_of("exec", command) == {
        **{"apiVersion": "v1", "kind": "PodExecOptions", "container": "c"},
        **{"stdin": True, "command": ["sh", "-c"]},
    }
    ports = {"apiVersion": "v1", "kind": "PodPortForwardOptions", "ports": [80, 443]}
    assert await object_of("portforward", place("pods", namespace, "p", "portforward", ports="80,443")) == ports
    proxied = {"apiVersion": "v1", "kind": "PodProxyOptions", "path": "/a/b"}
    assert await object_of("proxy", place("pods", namespace, "p", "proxy/a/b")) == proxied
    for part in ("exec", "portforward", "proxy"):
        await at.delete(f"{configurations}/{part}")


async def test_a_webhook_that_nobody_can_believe_fails_closed(at: Site, hook: Webhook) -> None:
    namespace = await at.namespace()
    client = {"url": hook.client("/add")["url"]}  # no authority
    body = configured("closed", namespace, client, "configmaps", "CREATE", failurePolicy="Fail")
    await at.post(place("validatingwebhookconfigurations"), body)
    await settled(at, namespace, lambda code, o: code == 500 and "failed calling webhook" in o["message"])
    await at.delete(place("validatingwebhookconfigurations", "", "closed"))


async def test_a_signing_request_is_approved_and_its_status_written(at: Site) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "e2e-example")])
    pem = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request = base64.b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"request": request, "signerName": "example.com/e2e", "usages": ["digital signature", "client auth"]}
    requests, path = place("certificatesigningrequests"), place("certificatesigningrequests", "", "r")
    async with at.watch(requests) as watch:
        await at.post(
            requests, {"metadata": {"name": "r", "labels": {"r": "x"}}, "spec": {**spec, "expirationSeconds": 3600}}
        )
        await at.patch(path, {"metadata": {"annotations": {"patched": "true"}}}, MERGE)
        await watch.until("MODIFIED", lambda o: o["metadata"].get("annotations", {}).get("patched") == "true")
        approval = {"type": "ApprovalPatch", "status": "True", "reason": "E2E"}
        body = {"metadata": {"annotations": {"patchedapproval": "true"}}, "status": {"conditions": [approval]}}
        patched = await at.patch(path + "/approval", body, MERGE)
        assert [c["type"] for c in patched["status"]["conditions"]] == ["ApprovalPatch"]
        assert patched["metadata"]["annotations"]["patchedapproval"] == "true"
        approved = {"type": "Approved", "status": "True", "reason": "E2E"}
        await at.change(path, lambda o: o["status"]["conditions"].append(approved), "approval")
        certificate = base64.b64encode(next(iter((at.server.directory / "pki").glob("ca.crt"))).read_bytes()).decode()
        body = {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": {"certificate": certificate}}
        patched = await at.patch(path + "/status", body, MERGE)
        assert patched["status"]["certificate"] == certificate
        assert patched["metadata"]["annotations"]["patchedstatus"] == "true"
        update = {"type": "StatusUpdate", "status": "True", "reason": "E2E"}
        updated = await at.change(path, lambda o: o["status"]["conditions"].append(update), "status")
        assert {c["type"] for c in updated["status"]["conditions"]} == {"ApprovalPatch", "Approved", "StatusUpdate"}
        await at.delete(requests + "?labelSelector=r%3Dx")
        await watch.until("DELETED")


async def test_tokens_are_verified_by_what_their_issuer_publishes(at: Site) -> None:
    namespace = await at.namespace()
    body = {"spec": {"audiences": ["oidc-discovery-test"], "expirationSeconds": 600}}
    token = (await at.post(place("serviceaccounts", namespace, "default", "token"), body))["status"]["token"]
    account = f"system:serviceaccount:{namespace}:default"
    group = "system:serviceaccounts"
    found = await at.ok(
        "GET", "/.well-known/openid-configuration", None, Impersonate_User=account, Impersonate_Group=group
    )
    keys = await at.ok("GET", "/openid/v1/jwks", None, Impersonate_User=account, Impersonate_Group=group)
    head = jwt.get_unverified_header(token)
    (key,) = (k for k in keys["keys"] if k["kid"] == head["kid"])
    claims = jwt.decode(
        token, jwt.PyJWK(key).key, algorithms=[head["alg"]], audience="oidc-discovery-test", issuer=found["issuer"]
    )
    assert claims["sub"] == account and head["alg"] in found["id_token_signing_alg_values_supported"]


async def test_kubectl_serves_the_api_on_a_socket_and_on_a_port_of_its_choice(at: Site, tmp_path: Path) -> None:
    config, socket = str(at.server.kubeconfig()), str(tmp_path / "proxy.sock")
    for arguments in ([f"--unix-socket={socket}"], ["--port=0"]):
        proxy = await asyncio.create_subprocess_exec(
            "kubectl", "--kubeconfig", config, "proxy", *arguments, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert proxy.stdout is not None
            async with asyncio.timeout(60):
                told = (await proxy.stdout.readline()).decode()
            assert "Starting to serve on" in told
            url = f"http://{told.split()[-1]}" if "--port=0" in arguments else "http://localhost"
            connector = None if "--port=0" in arguments else aiohttp.UnixConnector(socket)
            async with aiohttp.ClientSession(connector=connector) as session, session.get(url + "/api/") as answer:
                assert json.loads(await answer.text())["versions"] == ["v1"]
        finally:
            proxy.terminate()
            await proxy.wait()
