"""Refused writes of Secrets: no part of a value is in the journal, whatever way the request is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Iterator
from typing import Any

import httpx2
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.journal import PATH
from tests.support.broken_clusters import story_of
from wherry.testing import AsyncCluster
from wherry.why import report

EXAMPLES = int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "5"))
BASE = "/api/v1/namespaces/default/secrets"
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
LETTERS = "ЖЩЮЯЪЫЭбвгдж"
"""Characters that nothing else in a journal has: each is a trace of a value."""
VALUES = st.text(LETTERS, min_size=9, max_size=40)
Try = tuple[str, str, dict[str, Any]]


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


def patch(kind: str, body: object) -> Try:
    return "PATCH", "s?fieldManager=x", {"content": json.dumps(body), "headers": {"content-type": kind}}


def put(name: str = "s", **fields: Any) -> Try:
    return "PUT", name, {"json": {"metadata": {"name": name}, **fields}}


def tries(value: str) -> Iterator[Try]:
    """Yield requests that are refused, with a value in every place."""
    held, strict = encoded(value), "&fieldValidation=Strict"
    for data in (
        {"k": f"{value}!"},
        {"k": {"x": held}},
        {f"{value} x": held},
        {held + "/": held},
        value,
        [held],
        {"k": 1},
    ):
        yield put(data=data)
        yield put(stringData=data, data={"k": "!"})
        yield from (patch(kind, {"data": data, "stringData": {"k": [held, value]}}) for kind in (MERGE, STRATEGIC))
        yield patch(APPLY, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": data, value: held})
    for fields in ({"type": held}, {"immutable": value}, {"data": {"k": held}, value: held}, {"metadata": value}):
        yield put(**fields)
        for kind in (MERGE, STRATEGIC, APPLY):
            method, path, body = patch(kind, {"apiVersion": "v1", "kind": "Secret", **fields})
            yield method, path + strict, body
    for labels in ({held + "/x/y": value}, {"k": value}, {value: held}):
        yield patch(MERGE, {"metadata": {"labels": labels, "annotations": labels, "finalizers": [value]}})
    yield put(
        metadata={"name": "s", "ownerReferences": [{"apiVersion": held, "kind": value, "name": value, "uid": value}]}
    )
    docker = encoded('{"auths": ' + value)
    yield put("d", type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": docker})
    yield put("d", type="kubernetes.io/tls", data={"tls.key": held})
    for operation in (
        {"op": "test", "path": "/data/k", "value": value},
        {"op": "replace", "path": f"/data/{value}", "value": held},
        {"op": "add", "path": "/data/k/x", "value": held},
        {"op": held, "path": held, "from": value, value: held},
        {"op": "add", "path": "/data/k", "value": f"{value}!"},
        {"op": "copy", "from": f"/{value}", "path": held},
    ):
        yield patch(JSON_PATCH, [operation])
    for text in (f"data: {{k: {value}!}}\n bad: [{value}", f'{{"data":{{"k":"{held}" "{value}', f'["{held}"]', value):
        for kind in (APPLY, MERGE, STRATEGIC, JSON_PATCH):
            yield "PATCH", "s?fieldManager=x", {"content": text, "headers": {"content-type": kind}}
        yield "PUT", "s", {"content": text, "headers": {"content-type": "application/json"}}
        yield "PUT", "s", {"content": text, "headers": {"content-type": "application/vnd.kubernetes.protobuf"}}
        yield "PATCH", "s", {"content": text, "headers": {"content-type": f"text/{held}"}}
    for wanted in ("quota", "policy"):  # the policy's message quotes the value
        yield (
            "PATCH",
            "s",
            {
                "content": json.dumps({"metadata": {"labels": {"by": wanted}}, "data": {"k": held}}),
                "headers": {"content-type": MERGE},
            },
        )


def policy() -> list[dict[str, Any]]:
    """Return a policy that refuses Secrets with a label, and quotes them."""
    version = "admissionregistration.k8s.io/v1"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["secrets"]}]
    rule = {
        "expression": "!has(object.metadata.labels) || !('by' in object.metadata.labels)",
        "messageExpression": "'no: ' + object.data.k",
        "reason": "Forbidden",
    }
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [rule], "failurePolicy": "Fail"}
    binding = {"policyName": "quotes", "validationActions": ["Deny"]}
    return [
        {"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "quotes"}, "spec": spec},
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "all"},
            "spec": binding,
        },
    ]


def traces(value: str, shown: str) -> list[str]:
    """Return the parts of a value, or of its base64 form, that a text has."""
    held = encoded(value)
    parts = [held[at : at + 6] for at in range(len(held) - 6)]
    return [part for part in [*value, *parts, json.dumps(value)[1:7]] if part in shown]


async def refuse_all(values: list[str]) -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply(policy())
        journal = cluster.engine.api.journal
        assert journal is not None
        async with httpx2.AsyncClient(base_url="http://cluster", transport=cluster.transport()) as client:
            stored = {"metadata": {"name": "s"}, "data": {"k": encoded(values[0]), "other": encoded(values[-1])}}
            assert (await client.post(BASE, json=stored)).status_code == 201
            other = {"metadata": {"name": "d"}, "type": "kubernetes.io/dockerconfigjson"}
            answer = await client.post(BASE, json=other | {"data": {".dockerconfigjson": encoded("{}")}})
            assert answer.status_code == 201
            refused, kinds = 0, set[str]()
            for value in values:
                for method, path, body in tries(value):
                    answer = await client.request(method, f"{BASE}/{path}", **body)
                    refused += answer.status_code >= 400
                    kinds.add(f"{answer.status_code} {traces(value, answer.text) != []}")
            assert refused > 50 * len(values) and {"422 True", "403 True", "400 True", "415 False"} <= kinds, kinds
            page = await client.get(
                PATH, params={"version": "v1", "resource": "secrets", "namespace": "default", "name": "s"}
            )
        objects = [(place, *about) for place, ring in journal._rings.items() for about in ring.objects]
        kept = [entry for place, key, name in objects for _, entry in journal.about(key, place, name)]
        texts = msgspec.json.encode(kept).decode() + page.text
        story = "\n".join(report.lines(await story_of(cluster, "secret/s")))
        assert sum("was refused" in entry.text for entry in kept) > 50 * len(values)
        assert "by ValidatingAdmissionPolicy quotes" in texts and "data.* (FieldValueInvalid)" in texts
        for value in values:
            assert traces(value, texts) == [] and traces(value, story) == []


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(VALUES, min_size=2, max_size=3, unique=True))
def test_no_part_of_a_value_is_in_the_journal_after_any_refused_write(values: list[str]) -> None:
    asyncio.run(refuse_all(values))
