"""Whatever may be written can be read: by name, in every list and watch, in every form, and be changed and deleted.

The levels are drawn around the limit, where one more level that a form adds, or one more call that a level takes, would show.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kube.json_object import Object
from kube.nesting import DEEPEST
from tests.support import nesting
from tests.support.control import Answer, ApiUnderTest, api_server
from tests.support.hollow import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
EXAMPLES = int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "12"))
MODULES = {"ConfigMap": "core_v1", "ControllerRevision": "apps_v1", "CustomResourceDefinition": "apiextensions_v1"}
PATCHES = {
    "application/merge-patch+json": {"metadata": {"labels": {"a": "b"}}},
    "application/strategic-merge-patch+json": {"metadata": {"labels": {"a": "c"}}},
    "application/json-patch+json": [{"op": "add", "path": "/metadata/labels", "value": {"a": "d"}}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        assert (await api.request("POST", nesting.DEFINITIONS, nesting.THING)).status == 201

        async def served() -> bool:
            return (await api.request("GET", nesting.THINGS)).status == 200

        await eventually(served)
        yield api


def is_status(answer: Answer, *codes: int) -> bool:
    return answer.status in codes and answer.json["kind"] == "Status" and answer.json["code"] == answer.status


async def check_changes(server: ApiUnderTest, place: str, name: str) -> None:
    """Write an object as it was read, and in every kind of patch; it changes or is refused with a reason."""
    read = await server.request("GET", f"{place}/{name}")
    written = await server.request("PUT", f"{place}/{name}", read.body, headers={"Content-Type": "application/json"})
    assert written.status in (200, 409), written.body[:300]
    for kind, patch in PATCHES.items():
        answer = await server.request("PATCH", f"{place}/{name}", patch, headers={"Content-Type": kind})
        assert answer.status == 200 or is_status(answer, 409, 415), (kind, answer.body[:300])


@pytest.mark.parametrize("form", ["JSON", "YAML", "protobuf"])
@pytest.mark.parametrize("kind", nesting.KINDS)
async def test_the_deepest_objects_that_may_be_written_can_be_read_changed_and_deleted(
    server: ApiUnderTest, kind: str, form: str
) -> None:
    place, build = nesting.KINDS[kind]
    deepest = 0
    for levels in range(DEEPEST + 1, DEEPEST - 20, -1):
        name = f"deepest{form.lower()}{levels}" + ("s" if place == nesting.DEFINITIONS else "")
        answer = await create(server, place, build(name, levels), form)
        if answer is None:
            return
        assert answer.status == 201 or is_status(answer, 400), (levels, answer.body[:300])
        if answer.status == 201:
            deepest, path = levels, answer.json["metadata"]["name"]
            break
    assert DEEPEST - 10 < deepest <= DEEPEST
    try:
        await nesting.check_reads(server, place, path)
        await check_changes(server, place, path)
        await nesting.check_reads(server, place, path)
    finally:
        assert (await server.request("DELETE", f"{place}/{path}")).status == 200


async def create(server: ApiUnderTest, place: str, obj: Object, form: str) -> Answer | None:
    """Create an object by a body in a form; None if its kind has no such form."""
    if form == "protobuf":
        module = MODULES.get(obj["kind"])
        if module is None or nesting.levels_of(obj) > DEEPEST + 50:
            return None
        return await server.request("POST", place, nesting.protobuf(obj, module), headers=nesting.PROTOBUF)
    headers = {"Content-Type": f"application/{form.lower()}"}
    return await server.request("POST", place, nesting.json_text(obj), headers=headers)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    drawn=st.lists(
        st.tuples(
            st.sampled_from(sorted(nesting.KINDS)), st.integers(100, 1200), st.sampled_from(["JSON", "protobuf"])
        ),
        min_size=1,
        max_size=4,
    ),
    form=st.sampled_from(nesting.FORMS),
    query=st.sampled_from(nesting.QUERIES),
)
def draw(drawn: list[tuple[str, int, str]], form: str, query: str) -> None:
    DRAWN.append((drawn, form, query))


DRAWN: list[tuple[list[tuple[str, int, str]], str, str]] = []


async def test_whatever_may_be_written_can_be_read_in_every_form_and_by_every_list(server: ApiUnderTest) -> None:
    DRAWN.clear()
    draw()
    for number, (objects, form, query) in enumerate(DRAWN):
        made = []
        for index, (kind, levels, body) in enumerate(objects):
            place, build = nesting.KINDS[kind]
            obj = build(f"drawn{number}x{index}s", levels)
            answer = await create(server, place, obj, body)
            if answer is not None and answer.status == 201:
                made.append((place, answer.json["metadata"]["name"]))
            else:
                assert answer is None or is_status(answer, 400), (kind, levels, body, answer.body[:300])
        for place, name in made:
            for path in (f"{place}/{name}", place + query):
                read = await server.request("GET", path, headers={"Accept": form})
                assert read.status in (200, 406), (objects, form, path, read.body[:300])
        for place, name in made:
            assert (await server.request("DELETE", f"{place}/{name}")).status == 200


@pytest.mark.parametrize("levels", [DEEPEST + 1, 930, 950, 3000, 100_000])
async def test_json_within_protobuf_has_the_limit_of_json(server: ApiUnderTest, levels: int) -> None:
    text = b'{"f:a":' * levels + b"{}" + b"}" * levels
    body = nesting.config_map_with_fields("raw", text)
    answer = await server.request("POST", nesting.CONFIG_MAPS, body, headers=nesting.PROTOBUF)
    assert is_status(answer, 400), answer.body[:300]
    assert "exceeded max depth" in answer.json["message"]
    assert (await server.request("GET", f"{nesting.CONFIG_MAPS}?labelSelector=a")).status == 200


@pytest.mark.parametrize("text", [b"NaN", b"{", b"[1,]", b'{"f:a":Infinity}', '{"f:a":1}'.encode("utf-16")])
async def test_json_within_protobuf_is_that_of_json(server: ApiUnderTest, text: bytes) -> None:
    body = nesting.config_map_with_fields("raw", text)
    answer = await server.request("POST", nesting.CONFIG_MAPS, body, headers=nesting.PROTOBUF)
    assert is_status(answer, 400), answer.body[:300]


async def test_values_of_json_within_protobuf_count_as_those_of_the_body(server: ApiUnderTest) -> None:
    body = nesting.config_map_with_fields("raw", b"[" + b"{}," * 400_000 + b"{}]")
    answer = await server.request("POST", nesting.CONFIG_MAPS, body, headers=nesting.PROTOBUF)
    assert is_status(answer, 413), answer.body[:300]
    spread = b"[" + b"{}," * 30_000 + b"{}]"
    body = nesting.config_map_with_fields("raw", *[spread] * 8)
    answer = await server.request("POST", nesting.CONFIG_MAPS, body, headers=nesting.PROTOBUF)
    assert is_status(answer, 413), answer.body[:300]


@pytest.mark.parametrize("levels", [DEEPEST * 2 + 1, 3000, 20_000])
@pytest.mark.parametrize("field", ["not", "items", "additionalProperties", "properties"])
async def test_messages_that_nest_too_deep_are_refused(server: ApiUnderTest, field: str, levels: int) -> None:
    body = nesting.definition_message(field, levels)
    answer = await server.request("POST", nesting.DEFINITIONS, body, headers=nesting.PROTOBUF)
    assert is_status(answer, 400), answer.body[:300]
    assert "exceeded max depth" in answer.json["message"]
