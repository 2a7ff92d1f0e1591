from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.decoding.canonical import rewrite
from control.decoding.decode import Decoder
from kube.api import apiextensions_v1, coordination_v1, core_v1, policy_v1
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


def test_line_breaks_in_base64_are_ignored_and_not_stored() -> None:
    assert decoded(core_v1.Secret, "Secret", data={"k": "YWJj\r\nZGVm\n"})["data"] == {"k": "YWJjZGVm"}
    with pytest.raises(StatusError, match="illegal base64 data at input byte 5"):
        decoded(core_v1.Secret, "Secret", data={"k": "YWJj\nZ"})


def test_base64_with_loose_last_bits_is_stored_as_it_is_encoded() -> None:
    data = {"one": "QR==", "two": "QUJDREV=", "none": ""}
    assert decoded(core_v1.Secret, "Secret", data=data)["data"] == {"one": "QQ==", "two": "QUJDREU=", "none": ""}


def test_times_are_stored_in_utc_and_as_precise_as_their_kind() -> None:
    spec = {"renewTime": "2026-01-02T03:04:05.123456789+01:00"}
    lease = decoded(coordination_v1.Lease, "Lease", "coordination.k8s.io/v1", spec=spec)
    assert lease["spec"]["renewTime"] == "2026-01-02T02:04:05.123456Z"
    event = decoded(core_v1.Event, "Event", firstTimestamp="2026-01-02T03:04:05.9+01:00")
    assert event["firstTimestamp"] == "2026-01-02T02:04:05Z"


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(StatusError, match='parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon"'):
        decoded(core_v1.Event, "Event", lastTimestamp="soon")


NO_DAY = 'parsing time "{}": {} out of range'
IMPOSSIBLE = {
    "2020-02-31T00:00:00Z": "day",
    "2021-02-29T00:00:00Z": "day",
    "2020-04-31T12:00:00+01:00": "day",
    "2020-13-01T00:00:00Z": "month",
    "2020-01-01T24:00:00Z": "hour",
    "2020-01-01T00:60:00Z": "minute",
    "2020-01-01T00:00:60Z": "second",
    "2020-01-01T00:00:00+25:00": "time zone offset hour",
    "0000-01-01T00:00:00Z": "year",
    "9999-12-31T23:59:59-23:59": "year",
    "0001-01-01T00:00:00+23:59": "year",
}
NO_RFC3339 = (
    "２０２０-01-01T00:00:00Z",
    "2020-W01-1T00:00:00Z",
    "20200101T000000Z",
    "2020-01-01 00:00:00Z",
    "2020-01-01T00:00:00Z\n",
    "2020-01-01T00:00:00",
    "2020-01-01T00:00:00+00:00:30.5",
)


@pytest.mark.parametrize("micro", [False, True])
@pytest.mark.parametrize("text", [*IMPOSSIBLE, *NO_RFC3339])
def test_a_time_that_is_on_no_calendar_is_refused(text: str, micro: bool) -> None:
    if micro:
        text = text.replace("Z", ".000000Z")
    with pytest.raises(StatusError) as refused:
        decoded(core_v1.Event, "Event", **({"eventTime": text} if micro else {"lastTimestamp": text}))
    assert refused.value.code == 400
    part = IMPOSSIBLE.get(text.replace(".000000", ""))
    assert (
        "cannot parse" in refused.value.message if part is None else NO_DAY.format(text, part) in refused.value.message
    )


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2020-02-29T00:00:00Z", "2020-02-29T00:00:00Z"),
        ("2020-01-31T23:59:59Z", "2020-01-31T23:59:59Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59Z"),
        ("2020-03-01T00:30:00+01:00", "2020-02-29T23:30:00Z"),
        ("2020-12-31T00:00:00-24:00", "2021-01-01T00:00:00Z"),
        ("2020-01-01T1:00:00,5Z", "2020-01-01T01:00:00Z"),
        ("", ""),
    ],
)
def test_the_ends_of_months_and_of_the_calendar_are_times(text: str, stored: str) -> None:
    assert decoded(core_v1.Event, "Event", lastTimestamp=text).get("lastTimestamp") == stored


def test_times_in_maps_are_times() -> None:
    status = {"disruptedPods": {"a": "2026-01-02T03:04:05+01:00"}}
    budget = decoded(policy_v1.PodDisruptionBudget, "PodDisruptionBudget", "policy/v1", status=status)
    assert budget["status"]["disruptedPods"] == {"a": "2026-01-02T02:04:05Z"}
    with pytest.raises(StatusError, match="day out of range"):
        status = {"disruptedPods": {"a": "2026-02-30T03:04:05Z"}}
        decoded(policy_v1.PodDisruptionBudget, "PodDisruptionBudget", "policy/v1", status=status)


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
