"""Objects that upstream's API server stored, as this server reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control.storage import codec

SCHEMA = {"openAPIV3Schema": {"type": "object"}}
NAMES = {"plural": "boats", "kind": "Boat"}
COLUMN = {"name": "Size", "type": "string"}


def read(obj: dict[str, Any]) -> dict[str, Any]:
    return codec.decode(codec.with_revision(json.dumps(obj).encode(), 7))


def definition(**spec: Any) -> dict[str, Any]:
    about = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1"}
    return {**about, "metadata": {"name": "boats.g"}, "spec": {"group": "g", "names": NAMES, **spec}}


@pytest.mark.parametrize("named", [True, False])
def test_a_definition_of_v1beta1_is_one_of_v1(named: bool) -> None:
    versions = {"versions": [{"name": "v1", "served": True, "storage": True}]} if named else {}
    found = read(
        definition(
            version="v1",
            validation=SCHEMA,
            subresources={"status": {}},
            additionalPrinterColumns=[{**COLUMN, "JSONPath": ".spec.size"}],
            selectableFields=[{"jsonPath": ".spec.size"}],
            preserveUnknownFields=False,
            **versions,
        )
    )
    assert (found["apiVersion"], found["metadata"]["resourceVersion"]) == ("apiextensions.k8s.io/v1", "7")
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": SCHEMA,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [{**COLUMN, "jsonPath": ".spec.size"}],
        "selectableFields": [{"jsonPath": ".spec.size"}],
    }
    assert found["spec"] == {"group": "g", "names": NAMES, "versions": [version]}


def test_versions_that_differ_keep_what_they_have() -> None:
    other = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": "v1", "schema": SCHEMA}, {"name": "v2", "schema": other}]
    found = read(definition(version="v1", versions=versions, preserveUnknownFields=True))
    assert found["spec"]["versions"] == versions
    assert found["spec"]["preserveUnknownFields"] is True


def test_the_webhook_that_converts_is_found() -> None:
    client = {"service": {"name": "s", "namespace": "n"}}
    old = {"strategy": "Webhook", "webhookClientConfig": client, "conversionReviewVersions": ["v1"]}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    found = read(definition(version="v1", conversion=old))
    assert found["spec"]["conversion"] == {"strategy": "Webhook", "webhook": webhook}
    assert read(definition(version="v1", conversion={"strategy": "None"}))["spec"]["conversion"] == {"strategy": "None"}


def test_a_claim_without_a_phase_is_pending() -> None:
    claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "c"}}
    assert read(claim)["status"] == {"phase": "Pending"}
    assert read({**claim, "status": {}})["status"] == {"phase": "Pending"}
    assert read({**claim, "status": {"phase": "Bound"}})["status"] == {"phase": "Bound"}
