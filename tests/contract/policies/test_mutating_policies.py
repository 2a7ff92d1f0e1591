"""Mutating admission policies over the wire."""

import pytest

from tests.support.admission_policies import MUTATING, create, establish, path_of
from tests.support.control import ApiUnderTest

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_mutations_lay_a_configuration_over_the_object_or_patch_it(server: ApiUnderTest) -> None:
    apply = "Object{metadata: Object.metadata{labels: {'team': 'a'}}, data: {'added': string(size(object.data))}}"
    patch = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('example.com/x'), value: 'patched'}]"
    await establish(
        server,
        {
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": apply}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}},
            ]
        },
        kind=MUTATING,
    )
    made = await create(server, "m", labels={"kept": "yes"})
    assert made.status == 201, made.body
    assert made.json["metadata"]["labels"] == {"kept": "yes", "team": "a", "example.com/x": "patched"}
    assert made.json["data"] == {"a": "1", "added": "1"}


async def test_a_mutation_that_fails_changes_nothing(server: ApiUnderTest) -> None:
    wrong = "Object{data: {'n': 5}}"
    spec = {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": wrong}}]}
    await establish(server, spec, kind=MUTATING)
    refused = await create(server, "m")
    assert refused.status == 403
    assert "policy 'rule' with binding 'rule-everywhere' denied request: " in refused.json["message"]
    await server.request("DELETE", f"{path_of(MUTATING)}/rule")
    await server.request("DELETE", f"{path_of(MUTATING + 'Binding')}/rule-everywhere")
    await establish(server, {**spec, "failurePolicy": "Ignore"}, kind=MUTATING, name="lenient")
    assert (await create(server, "m")).json["data"] == {"a": "1"}


async def test_a_json_patch_whose_test_fails_changes_nothing_and_the_others_are_applied(server: ApiUnderTest) -> None:
    """Upstream: jsonPatcher.Patch in apiserver/pkg/admission/plugin/policy/mutating/patch."""
    add = "JSONPatch{op: 'add', path: '/data/%s', value: 'x'}"
    patches = [
        f"[{add % 'before'}, JSONPatch{{op: 'test', path: '/data/a', value: '2'}}]",
        f"[JSONPatch{{op: 'test', path: '/data/a', value: '1'}}, {add % 'made'}]",
    ]
    mutations = [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}} for patch in patches]
    await establish(server, {"mutations": mutations}, kind=MUTATING)
    assert (await create(server, "m")).json["data"] == {"a": "1", "made": "x"}


async def test_a_mutation_whose_values_share_their_parts_is_refused_before_it_is_written_out(
    server: ApiUnderTest,
) -> None:
    shared = "['x']" + ".map(v, [v, v, v, v, v, v, v, v, v, v])" * 9
    expression = f"[JSONPatch{{op: 'add', path: '/data/made', value: {shared}}}]"
    await establish(
        server, {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}, kind=MUTATING
    )
    refused = await create(server, "m")
    assert refused.status == 403 and "the result has more than" in refused.json["message"], refused.body[:300]


@pytest.mark.parametrize(("number", "shown"), [("0.0 / 0.0", "NaN"), ("1.0 / 0.0", "+Inf")])
async def test_a_mutation_whose_number_json_does_not_have_is_refused(
    server: ApiUnderTest, number: str, shown: str
) -> None:
    expression = f"[JSONPatch{{op: 'add', path: '/data/made', value: {number}}}]"
    await establish(
        server, {"mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}, kind=MUTATING
    )
    refused = await create(server, "m")
    assert refused.status == 403 and f"json: unsupported value: {shown}" in refused.json["message"], refused.body[:300]
