"""Numbers of JSON values as Go's decoder has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control.custom.conversion_response import BadConversion, Expected, read
from control.decoding.decode import Decoder, load_json
from control.decoding.numbers import NumberError, converted, normalized
from control.schemas.schema import Schema, fill
from kube.api import apps_v1
from kube.errors import StatusError

HUGE = 10**400
PROBLEM = f"json: cannot unmarshal number {HUGE} into Go value of type float64"


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ((1 << 63) - 1, (1 << 63) - 1),
        (-(1 << 63), -(1 << 63)),
        (1 << 64, 1 << 64),
        ((1 << 64) + 1, 1 << 64),
        (10**21, 1e21),
        (-(10**308), -1e308),
        ({"a": [True, None, "9" * 40, {"b": 10**30}]}, {"a": [True, None, "9" * 40, {"b": 1e30}]}),
    ],
)
def test_integers_beyond_64_bits_become_doubles(value: Any, wanted: Any) -> None:
    found = normalized(value)
    assert found == wanted and json.dumps(found) == json.dumps(wanted)


def test_a_value_with_ordinary_numbers_is_not_copied() -> None:
    value = {"a": [1, 2.5, "x"]}
    assert normalized(value) is value


@pytest.mark.parametrize("value", [HUGE, -HUGE, [{"a": HUGE}]])
def test_integers_beyond_doubles_are_refused(value: Any) -> None:
    with pytest.raises(NumberError, match=r"json: cannot unmarshal number -?10* into Go value of type float64"):
        normalized(value)


@pytest.mark.parametrize(
    ("value", "why"), [(float("nan"), "NaN"), (float("inf"), "[+]Inf"), ({"a": float("-inf")}, "-Inf")]
)
def test_results_that_are_no_numbers_are_refused(value: Any, why: str) -> None:
    with pytest.raises(NumberError, match=f"json: unsupported value: {why}"):
        converted(value)


def test_the_first_double_that_is_too_large_is_named() -> None:
    with pytest.raises(ValueError, match=r"json: cannot unmarshal number -1\.5E999 into Go value of type float64"):
        load_json(b'{"a": "1e999", "b": [1e300, -1.5E999, 1e400]}')


def test_what_a_built_in_kind_stores_without_a_type_is_checked_too() -> None:
    """Upstream stores these bytes as they are, and clients that read all kinds alike cannot read the list then."""
    decoder = Decoder(apps_v1.ControllerRevision, "apps/v1", "ControllerRevision")
    body = f'{{"metadata": {{"name": "a"}}, "data": {{"x": {HUGE}}}}}'.encode()
    with pytest.raises(StatusError) as refused:
        decoder.decode(body, "application/json", "Ignore", [])
    assert refused.value.code == 400 and PROBLEM in str(refused.value)


def test_defaults_are_doubles_where_they_are_too_long_for_64_bits() -> None:
    value: dict[str, Any] = {}
    schema = Schema({"type": "object", "properties": {"x": {"type": "number", "default": 10**30}}})
    fill(value, schema)
    assert type(value["x"]) is float and value == {"x": 1e30}


def test_what_a_conversion_webhook_returns_is_read_alike() -> None:
    expected = Expected("apiextensions.k8s.io/v1", "u", "K", "g/v2", "g/v1, K")
    sent = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "a", "uid": "1"}}

    def returned(number: int) -> list[Any]:
        made = {**sent, "apiVersion": "g/v2", "spec": number}
        response = {"uid": "u", "result": {"status": "Success"}, "convertedObjects": [made]}
        answer = {"apiVersion": expected.review, "kind": "ConversionReview", "response": response}
        return read(json.dumps(answer).encode(), expected, [sent], lambda found: found["spec"])

    assert json.dumps(returned(10**30)) == "[1e+30]"
    with pytest.raises(BadConversion, match=PROBLEM):
        returned(HUGE)
