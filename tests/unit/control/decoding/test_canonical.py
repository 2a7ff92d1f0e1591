from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.decoding.canonical import rewrite
from control.decoding.decode import Decoder
from kube.api import apiextensions_v1, coordination_v1, core_v1
from kube.errors import StatusError


def decoded(struct: type[msgspec.Struct], kind: str, version: str = "v1", **parts: Any) -> dict[str, Any]:
    body = msgspec.json.encode({"apiVersion": version, "kind": kind, **parts})
    return Decoder(struct, version, kind).decode(body, "application/json", "Strict", [])


def test_quantities_are_stored_in_canonical_form_wherever_they_are() -> None:
    resources = {"limits": {"cpu": 2, "memory": "1024Mi"}, "requests": {"cpu": 0.5}}
    volume = {"name": "v", "emptyDir": {"sizeLimit": "2048Ki"}}
    spec = {"containers": [{"name": "c", "resources": resources}], "volumes": [volume], "overhead": {"cpu": "1000m"}}
    found = decoded(core_v1.Pod, "Pod", spec=spec)["spec"]
    assert found["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "500m"},
    }
    assert found["volumes"][0]["emptyDir"] == {"sizeLimit": "2Mi"}
    assert found["overhead"] == {"cpu": "1"}


def test_what_is_no_quantity_is_refused_as_it_is_decoded() -> None:
    resources = {"limits": {"cpu": "much"}}
    with pytest.raises(StatusError) as refused:
        decoded(core_v1.Pod, "Pod", spec={"containers": [{"name": "c", "resources": resources}]})
    assert refused.value.code == 400
    assert refused.value.message == (
        'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression '
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


@pytest.mark.parametrize(("text", "place"), [("a?==", 1), ("YQ", 0), ("YWJjZ", 4), ("YWJj!GVm", 4)])
def test_what_is_no_base64_is_refused_with_its_place(text: str, place: int) -> None:
    with pytest.raises(StatusError) as refused:
        decoded(core_v1.Secret, "Secret", data={"k": text})
    assert refused.value.message == (
        f'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte {place}'
    )


def test_times_are_stored_in_utc_and_as_precise_as_their_kind() -> None:
    spec = {"renewTime": "2026-01-02T03:04:05.123456789+01:00"}
    lease = decoded(coordination_v1.Lease, "Lease", "coordination.k8s.io/v1", spec=spec)
    assert lease["spec"]["renewTime"] == "2026-01-02T02:04:05.123456Z"
    event = decoded(core_v1.Event, "Event", firstTimestamp="2026-01-02T03:04:05.9+01:00")
    assert event["firstTimestamp"] == "2026-01-02T02:04:05Z"


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(StatusError, match='parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon"'):
        decoded(core_v1.Event, "Event", lastTimestamp="soon")


def test_types_that_hold_themselves_are_passed_by() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    obj = {"spec": {"versions": [version]}}
    rewrite(obj, apiextensions_v1.CustomResourceDefinition)
    assert obj == {"spec": {"versions": [version]}}


def test_the_bounds_of_a_schema_stay_numbers() -> None:
    schema = {"maximum": 5.0, "properties": {"a": {"minimum": 0.5}}}
    obj = {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}
    rewrite(obj, apiextensions_v1.CustomResourceDefinition)
    assert obj["spec"]["versions"][0]["schema"] == {
        "openAPIV3Schema": {"maximum": 5.0, "properties": {"a": {"minimum": 0.5}}}
    }
