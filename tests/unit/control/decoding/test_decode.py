"""Bodies become objects of their type, or refusals in upstream's words."""

import json
import re
from typing import Any

import pytest

from control.custom.decoder import CustomDecoder
from control.decoding.decode import Decoder, FieldValidation
from control.decoding.decode_errors import duplicates, json_problem
from control.schemas.schema import Schema
from kube.api import apps_v1, core_v1
from kube.errors import StatusError
from kube.nesting import DEEPEST, check_nesting

PODS = Decoder(core_v1.Pod, "v1", "Pod")
DEPLOYMENTS = Decoder(apps_v1.Deployment, "apps/v1", "Deployment")
CUSTOMS = CustomDecoder(Schema({"type": "object"}), "example.com/v1", "Thing")
Either = Decoder | CustomDecoder


def decode(decoder: Decoder, body: Any, validation: FieldValidation = "Warn") -> tuple[Any, list[str]]:
    warnings: list[str] = []
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return decoder.decode(data, "application/json", validation, warnings), warnings


def test_kind_and_version_are_filled_in_and_unknown_fields_are_gone() -> None:
    obj, warnings = decode(
        PODS, {"metadata": {"name": "p", "colour": "red"}, "spec": {"containers": [{"name": "c", "x": 1}]}}
    )
    assert obj["kind"] == "Pod" and obj["apiVersion"] == "v1" and obj["metadata"] == {"name": "p"}
    assert obj["spec"]["containers"][0] == {"name": "c"} | {
        k: v for k, v in obj["spec"]["containers"][0].items() if k != "name"
    }
    assert warnings == ['unknown field "metadata.colour"', 'unknown field "spec.containers[0].x"']


def test_values_in_maps_are_known() -> None:
    _, warnings = decode(PODS, {"metadata": {"labels": {"any": "thing"}, "annotations": {"a/b": "c"}}})
    assert warnings == []


@pytest.mark.parametrize(
    ("body", "output"),
    [
        (b"", "unexpected end of JSON input (<empty>)"),
        (b"{", "unexpected end of JSON input ({)"),
        (b"nonsense", "invalid character 'o' in literal"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b'{"a":}', "invalid character '}' looking for beginning of value"),
        (b"{} {}", "invalid character '{' after top-level value"),
    ],
)
def test_bad_json_is_400(body: bytes, output: str) -> None:
    with pytest.raises(StatusError) as refused:
        decode(PODS, body)
    assert refused.value.code == 400
    assert refused.value.message.startswith("the object provided is unrecognized (must be of type Pod): couldn't get")
    if body != b"nonsense":
        assert output in refused.value.message


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c"}], **spec}}


def deployment(**rolling: Any) -> dict[str, Any]:
    return {"spec": {"strategy": {"rollingUpdate": rolling}}}


GRACE = "PodSpec.spec.terminationGracePeriodSeconds of type int64"


@pytest.mark.parametrize(
    ("decoder", "body", "where"),
    [
        (DEPLOYMENTS, {"spec": {"replicas": 2**31}}, "DeploymentSpec.spec.replicas of type int32"),
        (DEPLOYMENTS, deployment(maxSurge=2**31), "RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32"),
        (PODS, pod(terminationGracePeriodSeconds=2**63), GRACE),
        (PODS, pod(terminationGracePeriodSeconds=-(2**63) - 1), GRACE),
        (PODS, pod(terminationGracePeriodSeconds=10**4000), GRACE),
        (PODS, pod(tolerations=[{"tolerationSeconds": 2**63}]), "Toleration.spec.tolerations.tolerationSeconds of type int64"),
        (PODS, pod(securityContext={"supplementalGroups": [1, 2**63]}), "PodSecurityContext.spec.securityContext.supp.* int64"),
        (PODS, {"metadata": {"generation": 2**63}}, "ObjectMeta.metadata.generation of type int64"),
        (CUSTOMS, {"metadata": {"generation": 2**63}}, "ObjectMeta.metadata.generation of type int64"),
    ],
)  # fmt: skip
def test_an_integer_that_its_type_cannot_hold_is_refused(decoder: Either, body: Any, where: str) -> None:
    head = {"apiVersion": decoder.api_version, "kind": decoder.kind}
    with pytest.raises(StatusError) as refused:
        decode(decoder, head | body, "Ignore")
    assert refused.value.code == 400
    assert re.search(r"json: cannot unmarshal number -?[0-9]+ into Go struct field " + where, refused.value.message)


def test_the_largest_integers_of_a_type_are_accepted() -> None:
    for body in (pod(terminationGracePeriodSeconds=2**63 - 1), pod(terminationGracePeriodSeconds=-(2**63))):
        assert decode(PODS, body)[0]["spec"] == {"containers": [{"name": "c"}]} | body["spec"]
    assert (
        decode(DEPLOYMENTS, deployment(maxSurge=2**31 - 1))[0]["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
        == 2**31 - 1
    )


def test_the_first_integer_out_of_range_is_reported() -> None:
    with pytest.raises(StatusError, match=r"number 2147483648 .*maxSurge"):
        decode(DEPLOYMENTS, deployment(maxSurge=2**31, maxUnavailable=2**32))


def test_an_array_is_no_object() -> None:
    with pytest.raises(StatusError) as refused:
        decode(PODS, [])
    assert "json: cannot unmarshal array into Go value of type v1.Pod" in refused.value.message


def test_repeated_fields_carry_their_path() -> None:
    assert duplicates(b'{"a":{"b":1,"b":2},"l":[{"c":1,"c":1}],"d":"x","d":"y"}') == ["a.b", "l[0].c", "d"]
    assert duplicates(b'{"a":"\\"b\\":","c":{"a":1}}') == []


REPEATED = (
    b'{"metadata":{"name":"a","labels":{"x":"1","x":"2"}}}',
    b'{"metadata":{"name":"a","labels":{"x" :"1","x" :"2"}}}',
    b'{"metadata":{"name":"a","labels":{"x"\r\n\t :"1","x"\n:"2"}}}',
    b'{"metadata":{"name":"a","labels":{"x":"1","\\u0078":"2"}}}',
    b'{"metadata":{"name":"a","labels":{"x":"1","x":"2"},"annotations":{"y":"\\u0022:"}}}',
    b'{"metadata":{"name":"a","labels":{"x":"1","x" :"2"},"annotations":{"\\\\":"\\":"}}}',
)


@pytest.mark.parametrize("body", REPEATED)
@pytest.mark.parametrize("decoder", [PODS, CUSTOMS], ids=["built in", "custom"])
def test_a_repeated_field_is_found_however_it_is_written(decoder: Either, body: bytes) -> None:
    warnings: list[str] = []
    decoder.decode(body, "application/json", "Warn", warnings, check_kind=False)
    assert warnings == ['duplicate field "metadata.labels.x"']
    with pytest.raises(StatusError, match=r'strict decoding error: duplicate field "metadata\.labels\.x"'):
        decoder.decode(body, "application/json", "Strict", [], check_kind=False)


@pytest.mark.parametrize("decoder", [PODS, CUSTOMS], ids=["built in", "custom"])
def test_no_field_is_repeated_where_strings_and_spaces_look_like_it(decoder: Either) -> None:
    body = b'{ "metadata" : {"name" : "a", "annotations": {"x" : "\\" :\\":", ":" :" :", "y\\\\" : "\\\\"}} }'
    decoder.decode(body, "application/json", "Strict", [], check_kind=False)


@pytest.mark.parametrize("depth", [DEEPEST - 2, DEEPEST + 2])
def test_depth_is_bounded(depth: int) -> None:
    body = b"[" * depth + b'"]]]\\"[[["' + b"]" * depth
    if depth > DEEPEST:
        with pytest.raises(ValueError, match="exceeded max depth"):
            check_nesting(body)
    else:
        check_nesting(body)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    check_nesting(b"[" + b"{}," * 5000 + b"{}]")


def test_strict_reports_all_at_once() -> None:
    with pytest.raises(StatusError) as refused:
        decode(DEPLOYMENTS, {"spec": {"foo": 1, "bar": 2}}, "Strict")
    output = 'strict decoding error: unknown field "spec.foo", unknown field "spec.bar"'
    assert refused.value.message == f'Deployment in version "v1" cannot be handled as a Deployment: {output}'


def test_strict_reports_unknown_and_repeated_fields_in_the_order_of_the_text() -> None:
    body = b"""{"metadata": {"name": "a"}, "spec": {"unknownField": {"x": 1, "x": 2}, "replicas": 1, "replicas": 2, "odd": 1},
        "more": 1, "metadata": {"name": "b", "odd": 1}}"""
    with pytest.raises(StatusError) as refused:
        DEPLOYMENTS.decode(body, "application/json", "Strict", [])
    fields = (
        ("unknown", "spec.unknownField"),
        ("duplicate", "spec.replicas"),
        ("unknown", "spec.odd"),
        ("unknown", "more"),
        ("duplicate", "metadata"),
        ("unknown", "metadata.odd"),
    )
    output = ", ".join(f'{what} field "{path}"' for what, path in fields)
    assert refused.value.message.endswith(f"strict decoding error: {output}")


def test_json_problem_speaks_of_what_it_found() -> None:
    assert json_problem(b'{"a":tru}', ValueError()) == "invalid character 't' looking for beginning of value"


@pytest.mark.parametrize("text", ["", "[", '"', "\\", '\\"[', 'x"{', "]}"])
def test_brackets_in_strings_do_not_nest(text: str) -> None:
    within = DEEPEST - 1
    value: object = {text: [text, "", text] * DEEPEST}
    for _ in range(within - 1):
        value = {text: value}
    check_nesting(json.dumps(value).encode())
    with pytest.raises(ValueError, match="exceeded max depth"):
        check_nesting(json.dumps([value]).encode())
