"""Authorization by a real API server over TLS, with real kubectl for its own requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from kube import pki
from kube.json_object import Object
from kube.schema import wire_encode
from tests.support.control import ApiUnderTest, api_server

JANE = ("jane", ("dev",))
NODE = ("system:node:n1", ("system:nodes",))
NODE_TWO = ("system:node:n2", ("system:nodes",))


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        await created(server, "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        await created(server, "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "default"}})
        yield server


async def created(api: ApiUnderTest, path: str, obj: Object, **more: Any) -> Object:
    answer = await api.request("POST", path, obj, **more)
    assert answer.status == 201, answer.body
    found: Object = answer.json
    return found


def pod(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}], **spec}}


async def bind(api: ApiUnderTest, user: str, *rules: Object, namespace: str = "shop") -> None:
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    await created(api, f"{base}/roles", {"metadata": {"name": user}, "rules": list(rules)})
    group = "rbac.authorization.k8s.io"
    ref = {"apiGroup": group, "kind": "Role", "name": user}
    subject = {"apiGroup": group, "kind": "User", "name": user}
    await created(api, f"{base}/rolebindings", {"metadata": {"name": user}, "roleRef": ref, "subjects": [subject]})


async def until(api: ApiUnderTest, status: int, method: str, path: str, body: Any = None, **more: Any) -> Any:
    """Repeat a request until it is answered with a status: what authorizers know follows the store by a moment."""
    async with asyncio.timeout(30):
        while True:
            answer = await api.request(method, path, body, **more)
            if answer.status == status:
                return answer.json
            await asyncio.sleep(0.01)


async def plain(
    api: ApiUnderTest, path: str, token: str = "", method: str = "GET", body: Any = None
) -> tuple[int, Any]:
    """Ask without a client certificate."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(ssl=api.tls())
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, api.url + path, headers=headers, json=body) as answer,
    ):
        text = await answer.text()
        return answer.status, json.loads(text) if text.startswith("{") else text


async def test_without_credentials_health_alone_is_shown(api: ApiUnderTest) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert await plain(api, path) == (200, "ok")
    for path in ("/api/v1/pods", "/version", "/metrics", "/openid/v1/jwks", "/api/v1/namespaces/x/pods/y/exec"):
        status, body = await plain(api, path)
        assert (status, body["reason"], body["message"]) == (401, "Unauthorized", "Unauthorized")


async def test_wrong_tokens_are_refused_also_where_anybody_may_look(api: ApiUnderTest) -> None:
    for token in ("guess", "abcdef.0123456789abcdef", "a.b.c"):
        for path in ("/readyz", "/api/v1/pods"):
            assert (await plain(api, path, token))[0] == 401


async def test_certificates_of_strangers_and_of_the_front_proxy_make_no_users(
    api: ApiUnderTest, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    strangers = pki.new_ca("kubernetes", now)
    for ca in (strangers, api.keys.front_proxy_ca):
        pair = pki.issue(ca, "admin", ("system:masters",), now=now)
        pair.save(tmp_path, "stranger")
        context = api.tls()
        context.load_cert_chain(tmp_path / "stranger.crt", tmp_path / "stranger.key")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            try:
                async with session.get(api.url + "/api/v1/pods") as answer:
                    assert answer.status == 401
            except aiohttp.ClientError:
                pass  # refused in the handshake already


async def test_a_user_has_the_permissions_of_new_roles_immediately(api: ApiUnderTest) -> None:
    path = "/api/v1/namespaces/shop/pods"
    answer = await api.request("GET", path, user=JANE)
    assert answer.status == 403
    assert answer.json["message"] == (
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "shop"'
    )
    await bind(api, "jane", {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]})
    await until(api, 200, "GET", path, user=JANE)
    await api.request("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/jane")
    await until(api, 403, "GET", path, user=JANE)


async def test_a_websocket_exec_is_a_create_though_it_begins_with_a_get(api: ApiUnderTest) -> None:
    await created(api, "/api/v1/namespaces/shop/pods", pod("web"))
    await bind(api, "jane", {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/exec"]})
    await until(api, 200, "GET", "/api/v1/namespaces/shop/pods/web", user=JANE)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    }
    path = "/api/v1/namespaces/shop/pods/web/exec?command=id"
    answer = await api.request("GET", path, user=JANE, headers=upgrade)
    assert answer.status == 403 and "cannot create resource" in answer.json["message"]


async def test_nobody_gives_away_more_than_they_have(api: ApiUnderTest) -> None:
    await bind(
        api,
        "jane",
        {"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
    )
    base = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop"
    await until(api, 200, "GET", f"{base}/roles", user=JANE)
    fair = {"metadata": {"name": "fair"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
    await created(api, f"{base}/roles", fair, user=JANE)
    greedy = {
        "metadata": {"name": "greedy"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}],
    }
    # A wildcard on roles includes `escalate`; so take it away first.
    rules = [
        {
            "verbs": ["create", "get", "list"],
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["roles", "rolebindings"],
        },
        {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
    ]
    await api.request(
        "PATCH", f"{base}/roles/jane", {"rules": rules}, headers={"Content-Type": "application/merge-patch+json"}
    )
    refused = await until(api, 403, "POST", f"{base}/roles?dryRun=All", greedy, user=JANE)
    assert "is attempting to grant RBAC permissions not currently held:\n" in refused["message"]
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    answer = await api.request("POST", f"{base}/rolebindings", {"metadata": {"name": "b"}, "roleRef": ref}, user=JANE)
    assert answer.status == 403 and "not currently held" in answer.json["message"]


@pytest.mark.parametrize(("extend", "seconds"), [(None, 365 * 24 * 3600), (True, 365 * 24 * 3600), (False, 3607)])
async def test_the_flag_extends_tokens_that_kubelets_request_for_pods(
    tmp_path: Path, extend: bool | None, seconds: int
) -> None:
    changes = {} if extend is None else {"service_account_extend_token_expiration": extend}
    async with api_server(tmp_path, **changes) as server:
        await created(server, "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        await created(server, "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "a"}})
        made = await created(server, "/api/v1/namespaces/shop/pods", pod("p", serviceAccountName="a"))
        source = made["spec"]["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
        request = {"spec": {"expirationSeconds": source["expirationSeconds"], "boundObjectRef": bound}}
        issued = await created(server, "/api/v1/namespaces/shop/serviceaccounts/a/token", request)
        claims = jwt.decode(issued["status"]["token"], options={"verify_signature": False})
        assert claims["exp"] - claims["iat"] == seconds
        flags = (await server.request("GET", "/flagz")).body.decode()
        assert f"service-account-extend-token-expiration={str(extend is not False).lower()}" in flags


async def test_a_pods_token_lives_as_long_as_the_pod(api: ApiUnderTest) -> None:
    made = await created(api, "/api/v1/namespaces/shop/pods", pod("web", nodeName="n1"))
    ref = {"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": made["metadata"]["uid"]}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": ref}}
    issued = await created(api, "/api/v1/namespaces/shop/serviceaccounts/default/token", request)
    token = issued["status"]["token"]
    status, who = await plain(api, "/apis/authentication.k8s.io/v1/selfsubjectreviews", token, "POST", {})
    assert status == 201, who
    user = who["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:shop:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["web"]
    assert (await plain(api, "/api/v1/namespaces/shop/secrets", token))[0] == 403
    status, keys = await plain(api, "/openid/v1/jwks", token)
    assert status == 200 and keys["keys"][0]["use"] == "sig"
    await api.request("DELETE", "/api/v1/namespaces/shop/pods/web?gracePeriodSeconds=0")
    async with asyncio.timeout(30):
        while True:
            if (await plain(api, "/version", token))[0] == 401:
                return
            await asyncio.sleep(0.01)


async def test_a_node_sees_what_its_pods_use_and_no_more(api: ApiUnderTest) -> None:
    for name in ("used", "other"):
        await created(api, "/api/v1/namespaces/shop/secrets", {"metadata": {"name": name}})
    volume = {"name": "s", "secret": {"secretName": "used"}}
    await created(api, "/api/v1/namespaces/shop/pods", pod("web", nodeName="n1", volumes=[volume]))
    secrets = "/api/v1/namespaces/shop/secrets"
    await until(api, 200, "GET", f"{secrets}/used", user=NODE)
    for path, user in ((f"{secrets}/other", NODE), (secrets, NODE), (f"{secrets}/used", NODE_TWO)):
        assert (await api.request("GET", path, user=user)).status == 403
    answer = await api.request("GET", f"{secrets}/other", user=NODE)
    assert "no relationship found between node 'n1' and this object" in answer.json["message"]
    mine = await api.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", user=NODE)
    assert [p["metadata"]["name"] for p in mine.json["items"]] == ["web"]
    for path in ("/api/v1/pods", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2"):
        assert (await api.request("GET", path, user=NODE)).status == 403
    token = "/api/v1/namespaces/shop/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await api.request("POST", token, request, user=NODE)
    assert answer.status == 403 and "not bound to a pod" in answer.json["message"]


async def test_a_restricted_accounts_pod_is_not_debugged_with_a_secret_of_others(api: ApiUnderTest) -> None:
    annotations = {"kubernetes.io/enforce-mountable-secrets": "true"}
    account = {"metadata": {"name": "tight", "annotations": annotations}}
    await created(api, "/api/v1/namespaces/shop/serviceaccounts", account)
    await created(api, "/api/v1/namespaces/shop/pods", pod("web", serviceAccountName="tight"))
    debugger = {"name": "d", "image": "busybox", "envFrom": [{"secretRef": {"name": "theirs"}}]}
    answer = await api.request(
        "PATCH",
        "/api/v1/namespaces/shop/pods/web/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debugger]}},
        headers={"Content-Type": "application/strategic-merge-patch+json"},
    )
    assert answer.status == 403
    assert 'ephemeral container d with envFrom referencing secret.secretName="theirs"' in answer.json["message"]


async def test_a_node_gives_its_pods_no_claims_and_no_mirrors(api: ApiUnderTest) -> None:
    claims = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims"
    await created(api, claims, {"metadata": {"name": "theirs"}, "spec": {"devices": {"requests": []}}})
    resources = {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    container = {"name": "c", "image": "busybox", "resources": resources}
    await created(api, "/api/v1/namespaces/shop/pods", pod("web", nodeName="n1", containers=[container]))
    mirror = pod("static", nodeName="n1") | {
        "metadata": {"name": "static", "annotations": {"kubernetes.io/config.mirror": "x"}}
    }
    await created(api, "/api/v1/namespaces/shop/pods", mirror)
    await until(api, 200, "GET", "/api/v1/namespaces/shop/pods/web", user=NODE)
    merge = {"Content-Type": "application/merge-patch+json"}

    async def patched(name: str, change: Object) -> tuple[int, str]:
        path = f"/api/v1/namespaces/shop/pods/{name}/status"
        answer = await api.request("PATCH", path, change, user=NODE, headers=merge)
        return answer.status, answer.json.get("message", "")

    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}
    named = {"extendedResourceClaimStatus": {"resourceClaimName": "theirs", "requestMappings": [mapping]}}
    status, message = await patched("web", {"status": named})
    assert (status, message) == (
        403,
        'pods "web" is forbidden: node "n1" cannot update extended resource claim status',
    )
    assert (await api.request("GET", f"{claims}/theirs", user=NODE)).status == 403
    for value in (None, "y"):
        status, message = await patched("static", {"metadata": {"annotations": {"kubernetes.io/config.mirror": value}}})
        assert status == 422 and "may not remove or update mirror pod annotation" in message
    assert (await patched("web", {"status": {"phase": "Running"}}))[0] == 200


async def test_a_node_names_no_address_of_a_service_as_its_own(api: ApiUnderTest) -> None:
    """Others would take it for the node's: they would not serve it any more, or send to the node what is for the Service."""
    balanced = {"type": "LoadBalancer", "loadBalancerClass": "example.com/x", "ports": [{"port": 80}]}
    made = await created(api, "/api/v1/namespaces/shop/services", {"metadata": {"name": "web"}, "spec": balanced})
    points = {"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    answer = await api.request("PATCH", "/api/v1/namespaces/shop/services/web/status", points, headers=merge)
    assert answer.status == 200, answer.body
    await created(api, "/api/v1/namespaces/shop/pods", pod("web", nodeName="n1"))
    cluster_ip = made["spec"]["clusterIP"]

    def addresses(*texts: str) -> Object:
        return {"status": {"addresses": [{"type": "InternalIP", "address": text} for text in texts]}}

    for address, why in (
        (cluster_ip, "which is in the range 10.96.0.0/12 of Services"),
        ("203.0.113.9", "which is a load balancer's address of Service shop/web"),
    ):
        refused = f'nodes "n1" is forbidden: node "n1" is not allowed to set the address {address}, {why}'
        body = {"metadata": {"name": "n1"}, **addresses(address)}
        answer = await api.request("POST", "/api/v1/nodes", body, user=NODE)
        assert (answer.status, answer.json["message"], answer.json["reason"]) == (403, refused, "Forbidden")
    await created(api, "/api/v1/nodes", {"metadata": {"name": "n1"}, **addresses("192.168.0.1")}, user=NODE)
    for texts, status in ((["192.168.0.2"], 200), ([cluster_ip, "192.168.0.2"], 403), (["203.0.113.9"], 403)):
        answer = await api.request("PATCH", "/api/v1/nodes/n1/status", addresses(*texts), user=NODE, headers=merge)
        assert answer.status == status, answer.body
    answer = await api.request("PATCH", "/api/v1/nodes/n1/status", addresses("203.0.113.9"), headers=merge)
    assert answer.status == 200, "an administrator may"
    await until(api, 200, "GET", "/api/v1/namespaces/shop/pods/web", user=NODE)
    for address, status in (("10.244.1.2", 200), (cluster_ip, 403)):
        body = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
        path = "/api/v1/namespaces/shop/pods/web/status"
        assert (await api.request("PATCH", path, body, user=NODE, headers=merge)).status == status


async def test_a_node_writes_itself_and_no_other(api: ApiUnderTest) -> None:
    await created(
        api, "/api/v1/nodes", {"metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}}, user=NODE
    )
    answer = await api.request("POST", "/api/v1/nodes", {"metadata": {"name": "n3"}}, user=NODE)
    assert answer.status == 403
    assert answer.json["message"] == 'nodes "n3" is forbidden: node "n1" is not allowed to modify node "n3"'
    merge = {"Content-Type": "application/merge-patch+json"}
    for change in (
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "y"}]}},
        {"spec": {"taints": []}},
    ):
        for path in ("/api/v1/nodes/n1", "/api/v1/nodes/n1/status"):
            answer = await api.request("PATCH", path, change, user=NODE, headers=merge)
            changed = (await api.request("GET", "/api/v1/nodes/n1")).json
            assert answer.status == 403 or "spec" in change, answer.body
            assert "ownerReferences" not in changed["metadata"]
            assert "node-role.kubernetes.io/control-plane" not in changed["metadata"]["labels"]
            assert changed["spec"]["taints"][0]["key"] == "node.kubernetes.io/not-ready"


async def test_kubectl_shows_the_user_and_its_permissions(api: ApiUnderTest) -> None:
    who = json.loads((await api.kubectl("auth", "whoami", "-o", "json")).stdout)["status"]["userInfo"]
    assert who["username"] == "kubernetes-admin" and "system:masters" in who["groups"]
    other = (await api.kubectl("auth", "whoami", "--as=bob", "--as-group=dev", "-o", "json")).stdout
    assert json.loads(other)["status"]["userInfo"] == {"username": "bob", "groups": ["dev", "system:authenticated"]}
    assert (await api.kubectl("auth", "can-i", "create", "pods")).stdout.strip() == "yes"
    denied = await api.kubectl("auth", "can-i", "create", "pods", "--as=bob", check=False)
    assert denied.stdout.strip() == "no" and denied.returncode == 1
    listed = (await api.kubectl("auth", "can-i", "--list", "--as=bob")).stdout
    assert "selfsubjectreviews.authentication.k8s.io" in listed and "[/readyz]" in listed
    refused = await api.kubectl("get", "nodes", "--as=bob", check=False)
    assert refused.stderr.strip() == (
        'Error from server (Forbidden): nodes is forbidden: User "bob" cannot list resource "nodes" in API group "" '
        "at the cluster scope"
    )
    token = (await api.kubectl("create", "token", "default", "-n", "shop")).stdout.strip()
    assert (await plain(api, "/version", token))[0] == 200


async def test_kubectl_hears_of_limits_and_levels(api: ApiUnderTest) -> None:
    limit = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}
    await created(api, "/api/v1/namespaces/shop/limitranges", limit)
    big = pod("big")
    big["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    refused = await until(api, 403, "POST", "/api/v1/namespaces/shop/pods?dryRun=All", big)
    assert refused["message"] == ('pods "big" is forbidden: maximum cpu usage per Container is 1, but limit is 2')
    await api.kubectl("label", "namespace", "shop", "pod-security.kubernetes.io/enforce=baseline")
    await until(api, 403, "POST", "/api/v1/namespaces/shop/pods?dryRun=All", pod("host", hostNetwork=True))
    overrides = json.dumps({"spec": {"hostNetwork": True}})
    answer = await api.kubectl("run", "host", "-n", "shop", "--image=busybox", f"--overrides={overrides}", check=False)
    assert (
        'pods "host" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
        in answer.stderr
    )


async def test_the_audit_log_records_requests(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    rules = [
        {"level": "None", "nonResourceURLs": ["/readyz"]},
        {"level": "RequestResponse", "resources": [{"resources": ["configmaps"]}], "omitStages": ["RequestReceived"]},
        {"level": "Metadata", "omitStages": ["RequestReceived"]},
    ]
    policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    async with api_server(tmp_path, audit_policy_file=policy) as api:
        maps = "/api/v1/namespaces/default/configmaps"
        await created(api, maps, {"metadata": {"name": "noted"}, "data": {"a": "b"}})
        assert (await api.request("GET", "/api/v1/secrets", user=JANE)).status == 403
        assert (await plain(api, "/api/v1/pods", "guess"))[0] == 401
        await plain(api, "/readyz")
        await api.request("GET", f"{maps}?watch=true&timeoutSeconds=1")
        await api.kubectl("get", "nodes", "--as=bob", check=False)
    lines = [json.loads(line) for line in (tmp_path / "data" / "audit.log").read_text().splitlines()]
    by = {(e["verb"], e.get("objectRef", {}).get("resource"), e["stage"]): e for e in lines}
    assert not any(e["requestURI"] == "/readyz" for e in lines)
    made = by["create", "configmaps", "ResponseComplete"]
    assert made["requestObject"]["data"] == {"a": "b"} == made["responseObject"]["data"]
    assert made["user"]["username"] == "kubernetes-admin" and made["responseStatus"]["code"] == 201
    refused = by["list", "secrets", "ResponseComplete"]
    assert refused["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert refused["responseStatus"]["code"] == 403 and refused["sourceIPs"] == ["127.0.0.1"]
    assert by["list", "pods", "ResponseComplete"]["responseStatus"]["code"] == 401
    assert ("watch", "configmaps", "ResponseStarted") in by and ("watch", "configmaps", "ResponseComplete") in by
    other = by["list", "nodes", "ResponseComplete"]
    assert (other["user"]["username"], other["impersonatedUser"]["username"]) == ("kubernetes-admin", "bob")


async def test_the_audit_log_shows_objects_in_whichever_encoding_they_came(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    rules = [{"level": "RequestResponse", "resources": [{"group": "", "resources": ["configmaps"]}]}]
    stages = ["RequestReceived"]
    policy.write_text(
        json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, "omitStages": stages})
    )
    protobuf = "application/vnd.kubernetes.protobuf"
    accept = {"Accept": protobuf}
    async with api_server(tmp_path, audit_policy_file=policy) as api:
        maps = "/api/v1/namespaces/default/configmaps"
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wired"}, "data": {"a": "wired"}}
        message = wire_encode.framed(wire_encode.encode(obj, "core_v1", "ConfigMap"))
        for api_version, kind, name in (("v1", "ConfigMap", "wired"), ("", "", "unnamed")):
            body = wire_encode.envelope(api_version, kind, message.replace(b"wired", name.encode()[:5]))
            headers = {"Content-Type": protobuf, **accept}
            assert (await api.request("POST", f"{maps}?n={name}", body, headers=headers)).status == 201
        text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: written}\ndata: {a: written}\n"
        yaml = {"Content-Type": "application/yaml", "Accept": "application/yaml"}
        assert (await api.request("POST", f"{maps}?n=written", text, headers=yaml)).status == 201
        apply = {"Content-Type": "application/apply-patch+yaml"}
        answer = await api.request("PATCH", f"{maps}/written?fieldManager=m&force=1&n=applied", text, headers=apply)
        assert answer.status == 200
        large = {"metadata": {"name": "large"}, "data": {"a": "x" * 200_000}}
        zipped = {"Accept-Encoding": "gzip"}
        assert (await api.request("POST", f"{maps}?n=large", large, headers=zipped)).headers[
            "Content-Encoding"
        ] == "gzip"
        assert (await api.request("GET", f"{maps}?n=listed", headers=accept)).status == 200
        assert (await api.request("GET", f"{maps}/none?n=none", headers=accept)).status == 404
        bad = await api.request("POST", f"{maps}?n=bad", b"k8s\0nonsense", headers={"Content-Type": protobuf})
        assert bad.status == 400
    lines = [json.loads(line) for line in (tmp_path / "data" / "audit.log").read_text().splitlines()]
    by = {line["requestURI"].rpartition("n=")[2]: line for line in lines if "n=" in line["requestURI"]}
    for name, value in (("wired", "wired"), ("unnamed", "unnam"), ("written", "written"), ("applied", "written")):
        for part in ("requestObject", "responseObject"):
            found = by[name][part]
            assert (found["kind"], found["data"]) == ("ConfigMap", {"a": value}), (name, part)
    assert len(by["large"]["responseObject"]["data"]["a"]) == 200_000
    assert by["listed"]["responseObject"]["kind"] == "ConfigMapList"
    assert {item["metadata"]["name"] for item in by["listed"]["responseObject"]["items"]} >= {"wired", "written"}
    assert by["none"]["responseStatus"]["message"] == 'configmaps "none" not found'
    assert "requestObject" not in by["bad"] and by["bad"]["responseStatus"]["code"] == 400


async def test_a_local_review_is_limited_to_its_namespace(api: ApiUnderTest) -> None:
    reviewer = {"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]}
    await bind(api, "jane", reviewer)
    path = "/apis/authorization.k8s.io/v1/namespaces/shop/localsubjectaccessreviews"
    requested = {"verb": "get", "resource": "pods", "namespace": "shop"}
    review = {"spec": {"user": "root", "groups": ["system:masters"], "resourceAttributes": requested}}
    assert (await until(api, 201, "POST", path, review, user=JANE))["status"]["allowed"] is True
    review["spec"] = {"user": "root", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
    refused = await api.request("POST", path, review, user=JANE)
    assert refused.status == 422
    assert "spec.nonResourceAttributes: Invalid value" in refused.json["message"]


@pytest.mark.parametrize(
    ("anonymous", "modes", "status"),
    [
        (True, ("RBAC", "AlwaysAllow"), 401),
        (True, ("AlwaysAllow",), 401),
        (True, ("RBAC",), 403),
        (False, ("AlwaysAllow",), 401),
    ],
)
async def test_nobody_without_credentials_comes_to_an_authorizer_that_allows_everything(
    tmp_path: Path, anonymous: bool, modes: tuple[str, ...], status: int
) -> None:
    async with api_server(tmp_path, anonymous_auth=anonymous, authorization_modes=modes) as server:
        assert (await server.request("GET", "/api/v1/secrets", user=("", ()))).status == status
        assert (await server.request("GET", "/readyz", user=("", ()))).status == 200
