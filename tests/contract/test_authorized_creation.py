"""Nothing comes to be without the verb `create`: apply and replacement of what is not there ask for it too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control.auth.user import UserInfo
from control.server.inprocess import InProcessTransport
from kube.json_object import Object
from tests.contract.test_auth import bind, created, until
from tests.support.control import Answer, ApiUnderTest, api_server
from tests.support.custom_resources import GROUP, definition, install

JANE = ("jane", ())
APPLY = {"Content-Type": "application/apply-patch+yaml"}
WRITES = ["get", "update", "patch"]

LEASE = "coordination.k8s.io", "v1", "Lease", "leases", {"spec": {"holderIdentity": "x"}}
CASES: list[tuple[str, str, str, str, Object]] = [
    ("", "v1", "ConfigMap", "configmaps", {"data": {"a": "b"}}),
    ("", "v1", "Pod", "pods", {"spec": {"containers": [{"name": "c", "image": "i"}]}}),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", {"rules": []}),
    LEASE,
]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        await created(server, "/api/v1/namespaces", {"metadata": {"name": "shop"}})
        await created(server, "/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "default"}})
        await bind(server, "jane", {"apiGroups": ["*"], "resources": ["*"], "verbs": WRITES})
        await until(server, 404, "GET", "/api/v1/namespaces/shop/configmaps/x", user=JANE)
        yield server


def place(group: str, version: str, plural: str) -> str:
    return f"/{f'apis/{group}' if group else 'api'}/{version}/namespaces/shop/{plural}/made"


async def send(api: ApiUnderTest, how: str, case: tuple[str, str, str, str, Object], query: str = "") -> Answer:
    group, version, kind, plural, parts = case
    obj = {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind, "metadata": {"name": "made"}, **parts}
    path = place(group, version, plural)
    if how == "apply":
        return await api.request("PATCH", f"{path}?fieldManager=m&{query}", obj, headers=APPLY, user=JANE)
    return await api.request("PUT", f"{path}?{query}", obj, user=JANE)


@pytest.mark.parametrize("query", ["", "dryRun=All"])
async def test_what_is_not_there_is_applied_only_with_the_right_to_create(api: ApiUnderTest, query: str) -> None:
    for case in CASES:
        group, version, _, plural, _ = case
        answer = await send(api, "apply", case, query)
        reported = f'User "jane" cannot create resource "{plural}" in API group "{group}" in the namespace "shop"'
        full = f"{plural}.{group}" if group else plural
        assert (answer.status, answer.json["message"]) == (403, f'{full} "made" is forbidden: {reported}')
        assert (await api.request("GET", place(group, version, plural))).status == 404


async def test_a_replacement_creates_only_with_the_right_to_create(api: ApiUnderTest) -> None:
    answer = await send(api, "replace", LEASE)
    reported = 'User "jane" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "shop"'
    assert (answer.status, answer.json["message"]) == (
        403,
        f'leases.coordination.k8s.io "made" is forbidden: {reported}',
    )
    assert (await api.request("GET", place("coordination.k8s.io", "v1", "leases"))).status == 404


async def test_the_right_to_create_is_that_to_the_name(api: ApiUnderTest) -> None:
    await bind(api, "maker", {"apiGroups": ["*"], "resources": ["*"], "resourceNames": ["made"], "verbs": ["create"]})
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings"
    group = "rbac.authorization.k8s.io"
    ref = {"apiGroup": group, "kind": "Role", "name": "maker"}
    subject = {"apiGroup": group, "kind": "User", "name": "jane"}
    await created(api, role, {"metadata": {"name": "jane-makes"}, "roleRef": ref, "subjects": [subject]})
    review = {"resourceAttributes": {"namespace": "shop", "verb": "create", "resource": "pods", "name": "made"}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    while not (await api.request("POST", path, {"spec": review}, user=JANE)).json["status"]["allowed"]:
        pass
    for case in CASES:
        assert (await send(api, "apply", case)).status == 201, case
        assert (await send(api, "apply", case)).status == 200, case
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "another"}}
    path = "/api/v1/namespaces/shop/configmaps/another?fieldManager=m"
    assert (await api.request("PATCH", path, other, headers=APPLY, user=JANE)).status == 403


async def test_custom_resources_too(api: ApiUnderTest) -> None:
    await install(api, definition("CronTab"))
    case = (GROUP, "v1", "CronTab", "crontabs", {"spec": {"cronSpec": "* * *"}})
    answer = await send(api, "apply", case)
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")


async def test_the_in_process_client_is_authorized_too(api: ApiUnderTest) -> None:
    transport = InProcessTransport(api.api.pipeline, UserInfo("jane"))
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"made"}}'
    path = "/api/v1/namespaces/shop/configmaps/made"
    headers = {"content-type": APPLY["Content-Type"]}
    answer = await transport.request("PATCH", path, query={"fieldManager": "m"}, headers=headers, body=body)
    assert answer.status == 403
