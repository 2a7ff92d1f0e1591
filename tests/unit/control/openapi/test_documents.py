from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.openapi import definitions
from control.openapi.documents import Documents
from kube import resources

DOCUMENTS = Documents(resources.RESOURCES)


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        here = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return here.union(*(references(v) for v in node.values()))
    if isinstance(node, list):
        return set().union(*(references(v) for v in node))
    return set()


@pytest.mark.parametrize("root", sorted(DOCUMENTS.index()["paths"]))
def test_every_v3_document_is_whole(root: str) -> None:
    raw = DOCUMENTS.v3(root)
    assert raw is not None
    document = msgspec.json.decode(raw)
    schemas = document["components"]["schemas"]
    missing = {r for r in references(document) if r.removeprefix("#/components/schemas/") not in schemas}
    assert not missing
    assert '"null"' not in raw.decode()


def test_a_client_finds_that_strict_field_validation_is_taken() -> None:
    document = msgspec.json.decode(DOCUMENTS.v3("apis/apps/v1") or b"")
    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert {"fieldValidation", "dryRun"} <= {p["name"] for p in patch["parameters"]}
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}


def test_explain_finds_a_kind_with_its_descriptions() -> None:
    document = msgspec.json.decode(DOCUMENTS.v3("api/v1") or b"")
    pod = document["components"]["schemas"]["io.k8s.api.core.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    assert pod["description"].startswith("Pod is a collection of containers")
    assert pod["properties"]["kind"]["type"] == "string"
    assert "enum" not in pod["properties"]["kind"]
    assert pod["properties"]["spec"]["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.core.v1.PodSpec"}]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("pods/{name}/eviction", {"group": "policy", "version": "v1", "kind": "Eviction"}),
        ("pods/{name}/binding", {"group": "", "version": "v1", "kind": "Binding"}),
        ("serviceaccounts/{name}/token", {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}),
    ],
)
def test_subresources_that_are_created_name_what_is_sent(path: str, kind: dict[str, str]) -> None:
    document = msgspec.json.decode(DOCUMENTS.v3("api/v1") or b"")
    post = document["paths"][f"/api/v1/namespaces/{{namespace}}/{path}"]["post"]
    assert post["x-kubernetes-group-version-kind"] == kind
    sent = post["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert kind in document["components"]["schemas"][sent]["x-kubernetes-group-version-kind"]


def test_what_is_not_served_has_no_document() -> None:
    assert DOCUMENTS.v3("apis/nonsense/v1") is None


def test_the_index_changes_with_the_resources() -> None:
    fewer = Documents([r for r in resources.RESOURCES if r.plural != "deployments"])
    assert fewer.hash("apis/apps/v1") != DOCUMENTS.hash("apis/apps/v1")
    assert fewer.hash("api/v1") == DOCUMENTS.hash("api/v1")


def test_the_v2_document_and_its_protobuf_hold_the_same() -> None:
    document = msgspec.json.decode(DOCUMENTS.v2())
    assert not {r for r in references(document) if r.removeprefix("#/definitions/") not in document["definitions"]}
    fields = decode(DOCUMENTS.v2_protobuf())
    assert fields[1] == [b"2.0"]
    definitions = {}
    for named in decode(fields[9][0])[1]:
        entry = decode(named)
        definitions[entry[1][0].decode()] = decode(entry[2][0])
    assert definitions.keys() == document["definitions"].keys()
    pod = definitions["io.k8s.api.core.v1.Pod"]
    assert pod[4][0].decode() == document["definitions"]["io.k8s.api.core.v1.Pod"]["description"]
    paths = {decode(named)[1][0].decode() for named in decode(fields[8][0])[2]}
    assert paths == set(document["paths"])


def decode(message: bytes) -> dict[int, list[Any]]:
    """Read a protobuf message: field number -> values, for varints and length-delimited fields."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            byte = message[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            found.setdefault(tag >> 3, []).append(varint())
            continue
        assert tag & 7 == 2
        size = varint()
        found.setdefault(tag >> 3, []).append(message[at : at + size])
        at += size
    return found


def empty(node: Any, path: str = "") -> list[str]:
    """Return where a document has an empty list or mapping."""
    if isinstance(node, dict | list) and not node:
        return [path]
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [found for key, part in parts for found in empty(part, f"{path}/{key}")]


@pytest.mark.parametrize("root", sorted(DOCUMENTS.index()["paths"]))
def test_a_client_that_reads_a_document_and_writes_it_again_has_the_same(root: str) -> None:
    """Upstream's test "should round trip OpenAPI V3": Go's types leave out what is empty when they are written."""
    assert empty(msgspec.json.decode(DOCUMENTS.v3(root) or b"")) == []


def test_the_v2_document_has_no_empty_parts_either() -> None:
    assert empty(msgspec.json.decode(DOCUMENTS.v2())) == []


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_every_operation_of_a_resource_takes_the_option_pretty(version: str) -> None:
    raw = DOCUMENTS.v2() if version == "v2" else DOCUMENTS.v3("api/v1")
    paths = msgspec.json.decode(raw or b"")["paths"]
    operations = [(path, method, of) for path, found in paths.items() for method, of in found.items()]
    named = [(p, m, {x["name"] for x in of["parameters"]}) for p, m, of in operations if m != "parameters"]
    assert len(named) > 100
    assert not [(path, method) for path, method, options in named if "pretty" not in options]


def test_the_deletion_of_a_collection_has_upstreams_name_and_options() -> None:
    paths = msgspec.json.decode(DOCUMENTS.v3("apis/apps/v1") or b"")["paths"]
    operation = paths["/apis/apps/v1/namespaces/{namespace}/deployments"]["delete"]
    assert operation["operationId"] == "deleteAppsV1CollectionNamespacedDeployment"
    options = {parameter["name"] for parameter in operation["parameters"]}
    assert {"continue", "propagationPolicy"} <= options and not options & {"allowWatchBookmarks", "watch"}


def test_a_namespace_is_finalized_by_an_update_alone() -> None:
    paths = msgspec.json.decode(DOCUMENTS.v3("api/v1") or b"")["paths"]
    assert set(paths["/api/v1/namespaces/{name}/finalize"]) == {"put", "parameters"}


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_every_query_parameter_is_described(version: str) -> None:
    documents = (
        [DOCUMENTS.v2()] if version == "v2" else [DOCUMENTS.v3(root) or b"" for root in DOCUMENTS.index()["paths"]]
    )
    found = [
        parameter
        for document in documents
        for path in msgspec.json.decode(document)["paths"].values()
        for operation in path.values()
        if isinstance(operation, dict)
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    ]
    assert len(found) > 1000 and all(parameter["description"].endswith(".") for parameter in found)


@pytest.mark.parametrize(
    "words", ["list of returned", "List of services", "Watch for changes to the described resources"]
)
def test_the_document_has_the_words_that_upstreams_test_of_kubectl_looks_for(words: str) -> None:
    assert words in DOCUMENTS.v2().decode()
    assert words in DOCUMENTS.v2_protobuf().decode(errors="replace")


def test_without_the_described_schemas_the_documents_are_the_same_but_for_descriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bare(node: Any) -> Any:
        if isinstance(node, dict):
            return {k: bare(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}
        return [bare(each) for each in node] if isinstance(node, list) else node

    described = definitions.load()
    assert "Pod is a collection" in described["io.k8s.api.core.v1.Pod"]["description"]
    monkeypatch.setattr(definitions, "find_spec", lambda name: None)
    found = definitions.load()
    assert bare(found) == bare(described)
    assert "description" not in found["io.k8s.api.core.v1.Pod"]
    assert msgspec.json.decode(Documents(resources.RESOURCES).v3("apis/apps/v1") or b"")["components"]["schemas"]
