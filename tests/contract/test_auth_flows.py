"""Flows that need the API server and its controllers: certificates, bootstrap tokens, aggregated roles, quota."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kube import pki
from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server

GROUP = "rbac.authorization.k8s.io"


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path, enable_controllers=True) as server:
        yield server


async def until(api: ApiUnderTest, path: str, ready: Any, seconds: float = 20, **more: Any) -> Object:
    """Read an object until it is as wanted."""
    async with asyncio.timeout(seconds):
        while True:
            answer = await api.request("GET", path, **more)
            if answer.status == 200 and ready(answer.json):
                found: Object = answer.json
                return found
            await asyncio.sleep(0.02)


async def created(api: ApiUnderTest, path: str, obj: Object) -> Object:
    answer = await api.request("POST", path, obj)
    assert answer.status == 201, answer.body
    found: Object = answer.json
    return found


async def as_certificate(api: ApiUnderTest, pem: bytes, key: pki.PrivateKey, path: str) -> tuple[int, Object]:
    (api.directory / "issued.crt").write_bytes(pem)
    (api.directory / "issued.key").write_bytes(pki.encode_key(key))
    context: ssl.SSLContext = api.tls()
    context.load_cert_chain(api.directory / "issued.crt", api.directory / "issued.key")
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(api.url + path) as answer,
    ):
        return answer.status, await answer.json()


REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def signing_request(name: str, signer: str, pem: bytes, usages: list[str]) -> Object:
    spec = {"signerName": signer, "request": base64.b64encode(pem).decode(), "usages": usages}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }


async def test_an_approved_request_becomes_a_certificate_that_opens_the_door(api: ApiUnderTest) -> None:
    key = pki.new_key()
    pem = pki.new_request(key, "jane", ("dev",))
    wanted = signing_request("jane", "kubernetes.io/kube-apiserver-client", pem, ["client auth"])
    await created(api, REQUESTS, wanted)
    await api.kubectl("certificate", "approve", "jane")
    signed = await until(api, f"{REQUESTS}/jane", lambda o: o.get("status", {}).get("certificate"))
    status, answer = await as_certificate(
        api, base64.b64decode(signed["status"]["certificate"]), key, "/api/v1/namespaces/default/pods"
    )
    assert status == 403 and answer["message"].startswith('pods is forbidden: User "jane" cannot list')


async def test_masters_are_not_made_by_request(api: ApiUnderTest) -> None:
    pem = pki.new_request(pki.new_key(), "jane", ("system:masters",))
    wanted = signing_request("m", "kubernetes.io/kube-apiserver-client", pem, ["client auth"])
    answer = await api.request("POST", REQUESTS, wanted)
    assert answer.status == 403
    assert (
        "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        in (answer.json["message"])
    )


async def test_a_new_node_comes_in_by_its_bootstrap_token(api: ApiUnderTest) -> None:
    data = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:worker",
    }
    secret = {
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }
    await created(api, "/api/v1/namespaces/kube-system/secrets", secret)
    for role in ("system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"):
        subject = {"apiGroup": GROUP, "kind": "Group", "name": "system:bootstrappers:worker"}
        ref = {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}
        bound = {"metadata": {"name": "join-" + role.rsplit(":")[-1]}, "roleRef": ref, "subjects": [subject]}
        await created(api, f"/apis/{GROUP}/v1/clusterrolebindings", bound)
    key = pki.new_key()
    wanted = signing_request(
        "node-n1",
        "kubernetes.io/kube-apiserver-client-kubelet",
        pki.kubelet_client_request(key, "n1"),
        ["digital signature", "client auth"],
    )
    headers = {"Authorization": "Bearer abcdef.0123456789abcdef"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=api.tls()), headers=headers) as session:
        async with asyncio.timeout(30):
            while True:
                async with session.post(api.url + REQUESTS, json=wanted) as answer:
                    if answer.status == 201:
                        break
                    assert answer.status in (401, 403), await answer.text()
                await asyncio.sleep(0.02)
        async with session.get(api.url + "/api/v1/nodes") as answer:
            assert answer.status == 403
    signed = await until(api, f"{REQUESTS}/node-n1", lambda o: o.get("status", {}).get("certificate"))
    assert signed["spec"]["username"] == "system:bootstrap:abcdef"
    pem = base64.b64decode(signed["status"]["certificate"])
    assert (await as_certificate(api, pem, key, "/api/v1/nodes/n1"))[0] == 404
    assert (await as_certificate(api, pem, key, "/api/v1/nodes/n2"))[0] == 403


async def test_the_admin_of_a_namespace_is_filled_by_aggregation(api: ApiUnderTest) -> None:
    await until(api, f"/apis/{GROUP}/v1/clusterroles/admin", lambda o: len(o.get("rules") or ()) > 20)
    await api.kubectl("create", "namespace", "shop")
    await api.kubectl("create", "rolebinding", "bobs", "-n", "shop", "--clusterrole=admin", "--user=bob")
    bob = ("bob", ())
    await until(api, "/api/v1/namespaces/shop/secrets", lambda o: True, user=bob)
    assert (await api.request("GET", "/api/v1/namespaces/default/secrets", user=bob)).status == 403
    more = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "widgets", "labels": {f"{GROUP}/aggregate-to-admin": "true"}},
        "rules": [{"verbs": ["get"], "apiGroups": ["acme.com"], "resources": ["widgets"]}],
    }
    await created(api, f"/apis/{GROUP}/v1/clusterroles", more)
    await until(
        api,
        f"/apis/{GROUP}/v1/clusterroles/admin",
        lambda o: any("widgets" in r.get("resources", ()) for r in o["rules"]),
    )
    async with asyncio.timeout(30):  # allowed, and therefore told that there is no such thing
        while (await api.request("GET", "/apis/acme.com/v1/namespaces/shop/widgets/w", user=bob)).status != 404:
            await asyncio.sleep(0.02)


async def test_a_quota_counts_up_and_down(api: ApiUnderTest) -> None:
    await api.kubectl("create", "namespace", "shop")
    await until(api, "/api/v1/namespaces/shop/serviceaccounts/default", lambda o: True)
    await api.kubectl("create", "quota", "q", "-n", "shop", "--hard=pods=1,count/configmaps=5")
    path = "/api/v1/namespaces/shop/resourcequotas/q"
    await until(api, path, lambda o: "pods" in o.get("status", {}).get("used", {}))
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    pods = "/api/v1/namespaces/shop/pods"
    await created(api, pods, pod)
    answer = await api.request("POST", pods, pod | {"metadata": {"name": "b"}})
    assert answer.status == 403
    assert answer.json["message"] == (
        'pods "b" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    await api.request("DELETE", f"{pods}/a?gracePeriodSeconds=0")
    await until(api, path, lambda o: o["status"]["used"]["pods"] == "0")
    await created(api, pods, pod | {"metadata": {"name": "b"}})
    await until(api, path, lambda o: o["status"]["used"]["pods"] == "1")


async def test_a_quota_on_storage_stays_charged_when_it_is_counted_anew(api: ApiUnderTest) -> None:
    await api.kubectl("create", "namespace", "shop")
    hard = "requests.storage=3Gi,fast.storageclass.storage.k8s.io/requests.storage=2Gi"
    await api.kubectl("create", "quota", "q", "-n", "shop", f"--hard={hard}")
    path = "/api/v1/namespaces/shop/resourcequotas/q"
    await until(api, path, lambda o: "requests.storage" in o.get("status", {}).get("used", {}))

    async def claim(name: str, size: str) -> tuple[int, str]:
        spec = {
            "storageClassName": "fast",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        }
        claims = "/api/v1/namespaces/shop/persistentvolumeclaims"
        answer = await api.request("POST", claims, {"metadata": {"name": name}, "spec": spec})
        return answer.status, answer.json.get("message", "")

    assert (await claim("a", "1536Mi"))[0] == 201
    patch = {"spec": {"hard": {"requests.storage": "4Gi"}}}  # a new limit is counted anew
    await api.request("PATCH", path, patch, headers={"Content-Type": "application/merge-patch+json"})
    counted = await until(api, path, lambda o: o["status"]["hard"]["requests.storage"] == "4Gi")
    assert counted["status"]["used"]["requests.storage"] == "1536Mi"
    status, message = await claim("b", "1Gi")
    assert status == 403 and "used: fast.storageclass.storage.k8s.io/requests.storage=1536Mi" in message


async def test_a_quota_holds_devices_and_the_volumes_of_an_attributes_class(api: ApiUnderTest) -> None:
    await api.kubectl("create", "namespace", "shop")
    devices = "gpu.deviceclass.resource.k8s.io/devices"
    base = "/api/v1/namespaces/shop"
    await created(api, f"{base}/resourcequotas", {"metadata": {"name": "gpu"}, "spec": {"hard": {devices: "4"}}})
    term = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}
    spec = {"hard": {"persistentvolumeclaims": "1"}, "scopeSelector": {"matchExpressions": [term]}}
    await created(api, f"{base}/resourcequotas", {"metadata": {"name": "gold"}, "spec": spec})
    for name in ("gpu", "gold"):
        await until(api, f"{base}/resourcequotas/{name}", lambda o: "used" in o.get("status", {}))

    async def post(path: str, name: str, spec: dict[str, Any]) -> tuple[int, str]:
        answer = await api.request("POST", path, {"metadata": {"name": name}, "spec": spec})
        return answer.status, answer.json.get("message", "")

    claims = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims"
    wanted = {"deviceClassName": "gpu", "count": 3}
    assert (await post(claims, "a", {"devices": {"requests": [{"name": "r", "exactly": wanted}]}}))[0] == 201
    status, message = await post(claims, "b", {"devices": {"requests": [{"name": "r", "exactly": wanted}]}})
    assert status == 403 and f"requested: {devices}=3, used: {devices}=3, limited: {devices}=4" in message

    async def volume(name: str, attributes_class: str) -> int:
        resources = {"requests": {"storage": "1Gi"}}
        modes = {"accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": attributes_class}
        return (await post(f"{base}/persistentvolumeclaims", name, {**modes, "resources": resources}))[0]

    assert [await volume("a", "gold"), await volume("b", "gold"), await volume("b", "silver")] == [201, 403, 201]
    for name, hard in (("gpu", {devices: "5"}), ("gold", {"persistentvolumeclaims": "2"})):  # to be counted anew
        patch = {"spec": {"hard": hard}}
        merge = {"Content-Type": "application/merge-patch+json"}
        await api.request("PATCH", f"{base}/resourcequotas/{name}", patch, headers=merge)
        found = await until(api, f"{base}/resourcequotas/{name}", lambda o, hard=hard: o["status"]["hard"] == hard)
        assert list(found["status"]["used"].values()) == ["3" if name == "gpu" else "1"]

    # A status is written without being charged; what it brings into the scope is counted.
    patch = {"status": {"currentVolumeAttributesClassName": "gold"}}
    answer = await api.request("PATCH", f"{base}/persistentvolumeclaims/b/status", patch, headers=merge)
    assert answer.status == 200
    await until(api, f"{base}/resourcequotas/gold", lambda o: o["status"]["used"] == {"persistentvolumeclaims": "2"})


async def test_a_secret_made_for_an_account_gets_a_token_and_goes_with_it(api: ApiUnderTest) -> None:
    base = "/api/v1/namespaces/default"
    await created(api, f"{base}/serviceaccounts", {"metadata": {"name": "robot"}})
    metadata = {"name": "robot-token", "annotations": {"kubernetes.io/service-account.name": "robot"}}
    wanted = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}
    await created(api, f"{base}/secrets", wanted)
    filled = await until(api, f"{base}/secrets/robot-token", lambda o: "token" in o.get("data", {}))
    assert set(filled["data"]) == {"token", "namespace", "ca.crt"}
    token = base64.b64decode(filled["data"]["token"]).decode()
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=api.tls()), headers=headers) as session:
        review = api.url + "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        async with session.post(review, json={}) as answer:
            who = (await answer.json())["status"]["userInfo"]
            assert who["username"] == "system:serviceaccount:default:robot"
        await api.request("DELETE", f"{base}/serviceaccounts/robot")
        async with asyncio.timeout(30):
            while (await api.request("GET", f"{base}/secrets/robot-token")).status != 404:
                await asyncio.sleep(0.02)
        async with session.post(review, json={}) as answer:
            assert answer.status == 401


async def test_secrets_can_be_encrypted_in_the_store(tmp_path: Path) -> None:
    config = tmp_path / "encryption.yaml"
    key = {"name": "k1", "secret": base64.b64encode(b"0" * 32).decode()}
    providers: list[Object] = [{"aesgcm": {"keys": [key]}}, {"identity": {}}]
    entry = {"resources": ["secrets"], "providers": providers}
    config.write_text(json.dumps({"kind": "EncryptionConfiguration", "resources": [entry]}))
    secrets = "/api/v1/namespaces/default/secrets"
    for name, changes in (("before", {}), ("after", {"encryption_config_file": config})):
        async with api_server(tmp_path, **changes) as api:
            await created(api, secrets, {"metadata": {"name": name}, "stringData": {"password": f"swordfish-{name}"}})
            shown = (await api.request("GET", secrets)).json["items"]
            assert {s["metadata"]["name"] for s in shown} <= {"before", "after"}
            item = await api.api.store.get(f"/registry/secrets/default/{name}")
            assert item is not None and b"password" in item.value
    async with api_server(tmp_path, encryption_config_file=config) as api:
        text = (await api.kubectl("get", "secrets", "-o", "json")).stdout
        assert [base64.b64decode(s["data"]["password"]).decode() for s in json.loads(text)["items"]] == [
            "swordfish-after",
            "swordfish-before",
        ]
        for name in ("before", "after"):
            raw = await api.api.store._store.get(f"/registry/secrets/default/{name}")
            assert raw.value.startswith(b"k8s:enc:aesgcm:v1:k1:")
