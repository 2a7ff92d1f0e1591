"""Numbers of custom resources: whole ones of 64 bits, doubles beyond, and an error beyond those, however they are sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server
from tests.support.custom_resources import DEFINITIONS, GROUP, definition, install, version

pytestmark = pytest.mark.asyncio(loop_scope="module")
NUMBERED: Object = {
    "type": "object",
    "properties": {
        "n": {"type": "number"},
        "i": {"type": "integer"},
        "tenth": {"type": "number", "multipleOf": 0.1},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
HUGE = "1" + "0" * 400
PROBLEM = f"json: cannot unmarshal number {HUGE} into Go value of type float64"
PATCHES = {
    "merge-patch+json": '{"spec": %s}',
    "json-patch+json": '[{"op": "replace", "path": "/spec", "value": %s}]',
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(Path(tmp_path_factory.mktemp("numbers"))) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def path(server: ApiUnderTest) -> str:
    served = version("v1", subresources={"status": {}})
    schema = served["schema"]["openAPIV3Schema"]["properties"]
    schema["spec"] = schema["status"] = NUMBERED
    return await install(server, definition("Number", served))


def text(name: str, spec: str, **meta: Any) -> bytes:
    head = {"apiVersion": f"{GROUP}/v1", "kind": "Number", "metadata": {"name": name, **meta}}
    return (json.dumps(head)[:-1] + f', "spec": {spec}, "status": {spec}}}').encode()


async def sent(server: ApiUnderTest, method: str, url: str, body: bytes | str, kind: str = "json") -> Any:
    encoded = body if isinstance(body, bytes) else body.encode()
    return await server.request(method, url, encoded, headers={"Content-Type": f"application/{kind}"})


@pytest.mark.parametrize("kind", ["json", "yaml"])
@pytest.mark.parametrize(
    ("digits", "stored"),
    [
        ("9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808"),
        ("-9223372036854775809", "-9223372036854775808"),
        ("123456789012345678901234567890", "1.2345678901234568e29"),
    ],
)
async def test_whole_numbers_beyond_64_bits_become_doubles(
    server: ApiUnderTest, path: str, kind: str, digits: str, stored: str
) -> None:
    made = await sent(server, "POST", path, text("beyond", f'{{"n": {digits}, "free": {{"x": [{digits}]}}}}'), kind)
    assert made.status == 201, made.body
    try:
        spec = json.loads(made.body, parse_int=str, parse_float=str)["spec"]
        assert [spec["n"], spec["free"]["x"][0]] == [stored, stored]
    finally:
        await server.request("DELETE", f"{path}/beyond")


@pytest.mark.parametrize("spec", ['{"n": %s}', '{"free": {"x": [{"y": %s}]}}'])
async def test_numbers_beyond_doubles_are_refused_in_each_request(server: ApiUnderTest, path: str, spec: str) -> None:
    spec %= HUGE
    made = await sent(server, "POST", path, text("huge", spec))
    message = f'Number in version "v1" cannot be handled as a Number: {PROBLEM}'
    assert (made.status, made.json["message"]) == (400, message)
    first = await sent(server, "POST", path, text("first", '{"n": 1}'))
    assert first.status == 201
    try:
        revision = first.json["metadata"]["resourceVersion"]
        for part in ("", "/status"):
            where = f"{path}/first{part}"
            answer = await sent(server, "PUT", where, text("first", spec, resourceVersion=revision))
            assert (answer.status, answer.json["message"]) == (400, message)
            for kind, patch in PATCHES.items():
                answer = await sent(server, "PATCH", where, patch % spec, kind)
                assert (answer.status, answer.json["message"]) == (400, f"error decoding patch: {PROBLEM}")
        assert json.loads((await server.request("GET", f"{path}/first")).body)["spec"] == {"n": 1}
        found = await server.kubectl("get", f"numbers.{GROUP}", "-A", "-o", "name")
        assert found.stdout.split() == [f"number.{GROUP}/first"]
    finally:
        await server.request("DELETE", f"{path}/first")


async def test_numbers_of_an_apply_are_yamls(server: ApiUnderTest, path: str) -> None:
    """To YAML a number beyond doubles is a text."""
    url = f"{path}/applied?fieldManager=test"
    body = text("applied", '{"n": 123456789012345678901234567890}')
    made = await sent(server, "PATCH", url, body, "apply-patch+yaml")
    try:
        assert made.status == 201 and b"1.2345678901234568e29" in made.body, made.body
        refused = await sent(server, "PATCH", url, text("applied", f'{{"n": {HUGE}}}'), "apply-patch+yaml")
        assert 400 <= refused.status < 500, refused.body
    finally:
        await server.request("DELETE", f"{path}/applied")


async def test_doubles_beyond_their_range_are_refused(server: ApiUnderTest, path: str) -> None:
    made = await sent(server, "POST", path, text("huge", '{"n": 1e400}'))
    assert made.status == 400 and "cannot unmarshal number 1e400 into Go value of type float64" in made.json["message"]


async def test_a_large_number_is_no_multiple(server: ApiUnderTest, path: str) -> None:
    made = await sent(server, "POST", path, text("multiple", '{"tenth": 1e308}'))
    assert made.status == 422 and "should be a multiple of 0.1" in made.json["message"], made.body


async def test_a_default_beyond_doubles_is_refused(server: ApiUnderTest) -> None:
    served = version("v1")
    served["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "object",
        "properties": {"n": {"type": "number", "default": int(HUGE)}},
    }
    made = await sent(server, "POST", DEFINITIONS, json.dumps(definition("Defaulted", served)))
    assert made.status == 400 and PROBLEM in made.json["message"], made.body
