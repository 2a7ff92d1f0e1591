"""Expressions of policies and match conditions that cost much: evaluated and compiled in a thread."""

import asyncio
import threading
from typing import Any

import pytest

from control.cel import Program, Result, parser, program
from kube.json_object import Object
from tests.support.admission_policies import (
    GROUP,
    MUTATING,
    RULE,
    VALIDATING,
    create,
    establish,
    path_of,
)
from tests.support.control import ApiUnderTest

pytestmark = pytest.mark.asyncio(loop_scope="module")


COSTLY = "object.data.all(a, object.data.all(b, a != '' || b != ''))"


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the threads in which expressions are evaluated to their end."""
    seen = set[str]()
    original = Program.evaluate

    def evaluate(self: Program, *args: Any) -> Result:
        result = original(self, *args)
        seen.add(threading.current_thread().name.partition("_")[0])
        return result

    monkeypatch.setattr(Program, "evaluate", evaluate)
    return seen


@pytest.mark.parametrize("part", ["validations", "matchConditions", "mutations"])
async def test_expressions_that_cost_much_are_evaluated_beside_the_event_loop(
    server: ApiUnderTest, threads: set[str], part: str
) -> None:
    allowed = "authorizer.group('').resource('configmaps').check('create').allowed()"
    spec: Object = {"validations": [{"expression": f"{allowed} && {COSTLY} && has(object.data.none)"}]}
    kind = VALIDATING
    if part == "matchConditions":
        spec = {part: [{"name": "c", "expression": COSTLY}], "validations": [{"expression": "1 == 2"}]}
    elif part == "mutations":
        kind, patch = MUTATING, f"[JSONPatch{{op: 'add', path: '/data/made', value: string({COSTLY})}}]"
        spec = {part: [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}]}
    await establish(server, spec, kind=kind)
    answer = await create(server, "x", {f"key-{number}": "v" for number in range(100)})
    assert answer.json["data"]["made"] == "true" if part == "mutations" else answer.status == 422
    assert "large-objects" in threads


@pytest.mark.parametrize("part", ["validations", "variables"])
async def test_one_expression_has_a_limit_of_its_own(server: ApiUnderTest, part: str) -> None:
    """A million, while all of a policy's have ten together: 300 keys cost a third of it, 700 twice as much."""
    spec: Object = {"validations": [{"expression": COSTLY}] * 3}
    if part == "variables":
        spec = {"variables": [{"name": "v", "expression": COSTLY}], "validations": [{"expression": "variables.v"}]}
    await establish(server, spec)
    few, many = ({f"key-{number}": "v" for number in range(count)} for count in (300, 700))
    assert (await create(server, "few", few)).status == 201
    answer = await create(server, "many", many)
    assert (answer.status, "actual cost limit exceeded" in answer.json["message"]) == (422, True)


LONG = " && ".join(["!has(object.data.none)"] * 10)


async def test_long_expressions_are_compiled_beside_the_event_loop(
    server: ApiUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[tuple[str, str]] = []
    parse = parser.parse

    def parsing(text: str) -> Any:
        compiled.append((text, threading.current_thread().name.partition("_")[0]))
        return parse(text)

    monkeypatch.setattr(program, "parse", parsing)
    variables = [{"name": "v", "expression": f"{LONG} && true"}]
    conditions = [{"name": "c", "expression": f"{LONG} || true"}]
    spec: Object = {"variables": variables, "matchConditions": conditions, "validations": [{"expression": LONG}]}
    await establish(server, spec)
    assert (await create(server, "x")).status == 201
    path = f"{path_of(VALIDATING)}/rule"
    async with asyncio.timeout(30):
        while not (await server.request("GET", path)).json["status"].get("observedGeneration"):
            await asyncio.sleep(0.02)
    hook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1"},
        "rules": [RULE],
        "matchConditions": [{"name": "c", "expression": f"{LONG} && false"}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {"metadata": {"name": "long"}, "webhooks": [hook]}
    assert (await server.request("POST", f"{GROUP}/validatingwebhookconfigurations", body)).status == 201
    assert (await create(server, "y")).status == 201
    wanted = {LONG, f"{LONG} && true", f"{LONG} || true", f"{LONG} && false"}
    assert {text for text, _ in compiled} >= wanted
    assert {thread for text, thread in compiled if text in wanted} == {"large-objects"}
