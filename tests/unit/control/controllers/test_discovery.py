from __future__ import annotations

import json

import pytest

from control.controllers import namespace
from control.controllers.discovery import DiscoveredResource, served
from kube.client import Client, Response
from kube.errors import StatusError

SERVED = DiscoveredResource("example.com", "v1", "fleets", "Fleet", True, frozenset())


@pytest.mark.parametrize(
    "name, path",
    [
        ("", "fleets"),
        ("system:a", "fleets/system:a"),
        ("a b?watch=1#x", "fleets/a%20b%3Fwatch%3D1%23x"),
    ],
)
def test_a_name_is_one_segment_of_a_path(name: str, path: str) -> None:
    assert SERVED.path("default", name) == f"/apis/example.com/v1/namespaces/default/{path}"


@pytest.mark.parametrize("name", ["../../secrets", "web:80/proxy/x", "..", "a%2Fb"])
def test_a_name_that_no_path_can_contain_is_refused(name: str) -> None:
    with pytest.raises(StatusError, match="invalid resource name") as raised:
        SERVED.path("default", name)
    assert raised.value.code == 400


class Documents:
    """Answers discovery with documents."""

    def __init__(self, **documents: object) -> None:
        self._documents = documents

    async def request(self, method: str, path: str, **options: object) -> Response:
        return Response(200, {}, json.dumps(self._documents[path.strip("/")]).encode())


def version(name: str, **more: object) -> dict[str, object]:
    entry = {"resource": "fleets", "responseKind": {"kind": "Fleet"}, "scope": "Namespaced", "verbs": ["get", "list"]}
    return {"version": name, "resources": [entry], **more}


GROUP = {"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]}
AGGREGATED = {"kind": "APIGroupDiscoveryList", "items": [{"metadata": {}, "versions": [version("v1")]}]}


@pytest.mark.parametrize(
    ("api", "apis"),
    [
        ({"kind": "APIVersions", "versions": ["v1"]}, AGGREGATED),
        (AGGREGATED, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [GROUP]}),
        (AGGREGATED, {}),
        ({"kind": "APIGroupDiscoveryList", "items": None}, AGGREGATED),
    ],
)
async def test_discovery_that_is_not_aggregated_is_an_error_and_not_a_server_without_resources(
    api: object, apis: object
) -> None:
    client = Client(Documents(api=api, apis=apis))  # type: ignore[arg-type]
    with pytest.raises(StatusError, match="is no aggregated discovery document") as raised:
        await served(client)
    assert raised.value.code == 502
    with pytest.raises(StatusError, match="is no aggregated discovery document"):
        await namespace.delete_content(client, "shop", 0.0)


async def test_each_resource_is_found_in_the_first_version_of_its_group() -> None:
    group = {"metadata": {"name": "example.com"}, "versions": [version("v1"), version("v1beta1", freshness="Stale")]}
    core = {"metadata": {}, "versions": [version("v1")]}
    client = Client(Documents(api={"items": [core]}, apis={"items": [group]}))  # type: ignore[arg-type]
    found, stale = await served(client)
    assert [(each.api_version, each.kind, each.namespaced) for each in found] == [
        ("v1", "Fleet", True),
        ("example.com/v1", "Fleet", True),
    ]
    assert found[1].verbs == {"get", "list"} and stale == ["example.com/v1beta1"]


@pytest.mark.parametrize(
    "document", [[], {"items": 5}, {"items": [{"versions": [{"version": "v1", "resources": [5]}]}]}]
)
async def test_a_document_that_is_none_is_an_error_of_the_server(document: object) -> None:
    with pytest.raises(StatusError, match=r"the answer to GET /apis? cannot be read"):
        await served(Client(Documents(api=document, apis=document)))  # type: ignore[arg-type]
