"""An apply of what is applied already writes nothing, also where the server stores it in another form (as GitOps tools do)."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from kube.clock import SystemClock
from tests.support.control import ApiUnderTest, api_server
from tests.support.custom_resources import definition, settled, version

APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
pytestmark = pytest.mark.asyncio(loop_scope="module")
LABELS = {"app": "again"}
DEFINITION = definition("Again", version())
DEFINITION["metadata"]["annotations"] = {"controller": "v1"}
DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["empty"] = {
    "type": "string",
    "default": "",
}
STORED_OTHERWISE: list[tuple[str, dict[str, Any]]] = [
    (  # in a list without keys each item gets its defaults
        "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "again"},
            "spec": {
                "podSelector": {"matchLabels": LABELS},
                "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 8082}]}],
                "policyTypes": ["Ingress"],
            },
        },
    ),
    (  # stringData becomes data
        "/api/v1/namespaces/default/secrets",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "again"}, "stringData": {"k": "v"}},
    ),
    (  # a value that is empty is not stored
        "/api/v1/namespaces/default/configmaps",
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "again", "labels": None}, "data": {}},
    ),
    (
        "/apis/apps/v1/namespaces/default/deployments",
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "again", "creationTimestamp": None},
            "spec": {
                "selector": {"matchLabels": LABELS},
                "template": {
                    "metadata": {"labels": LABELS, "creationTimestamp": None},
                    "spec": {
                        "containers": [
                            {
                                "name": "c",
                                "image": "i",
                                "env": [{"name": "E", "value": ""}],
                                "resources": {"limits": {"cpu": "1000m"}},
                                "volumeMounts": [],
                            }
                        ],
                        "securityContext": {},
                    },
                },
                "strategy": {},
            },
            "status": {"replicas": 0},
        },
    ),
    (
        "/api/v1/namespaces/default/resourcequotas",
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "again"},
            "spec": {"hard": {"pods": "1000"}, "scopes": None},
        },
    ),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION),
]


class LaterClock(SystemClock):
    """The system's clock, ahead of it by some seconds."""

    ahead = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.ahead)


CLOCK = LaterClock()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api"), CLOCK) as api:
        yield api


@pytest.mark.parametrize(("path", "body"), STORED_OTHERWISE, ids=[body["kind"] for _, body in STORED_OTHERWISE])
async def test_an_apply_of_the_same_writes_nothing(server: ApiUnderTest, path: str, body: dict[str, Any]) -> None:
    url = f"{path}/{body['metadata']['name']}?fieldManager=again"
    first = await server.request("PATCH", url, body, headers=APPLY)
    assert first.status == 201, first.json
    if body["kind"] == "CustomResourceDefinition":
        await settled(server, body["metadata"]["name"], "Established")  # its controller writes the status until then
    CLOCK.ahead += 60  # times of managedFields have whole seconds
    before = (await server.request("GET", url)).json
    again = await server.request("PATCH", url, body, headers=APPLY)
    assert (again.status, again.json) == (200, before)
    changed = copy.deepcopy(body)
    changed["metadata"]["labels"] = {"new": "yes"}
    written = (await server.request("PATCH", url, changed, headers=APPLY)).json
    assert written["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert written["metadata"]["labels"] == {"new": "yes"}


async def test_what_the_server_writes_for_itself_has_its_manager(server: ApiUnderTest) -> None:
    """A conflict with a role or namespace of the server names its owner."""
    for path in ("/apis/rbac.authorization.k8s.io/v1/clusterroles/view", "/api/v1/namespaces/default"):
        fields = (await server.request("GET", path)).json["metadata"]["managedFields"]
        assert {(entry["manager"], entry["operation"]) for entry in fields} == {("kube-apiserver", "Update")}
