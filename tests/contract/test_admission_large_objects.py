"""Webhooks and policies that change a large object: the work on the object is done outside the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server
from tests.support.cost import Lines
from tests.support.webhook import patching, webhook

GROUP = "admissionregistration.k8s.io/v1"
MANY = 4000
LINES_OF_A_CALL = 20_000
"""Lines of Python that a request costs more with a webhook, which answers on the same loop, or a policy."""
RULE = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["*"]}
LABEL = {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}
APPLIED = {
    "patchType": "ApplyConfiguration",
    "applyConfiguration": {"expression": 'Object{metadata: Object.metadata{labels: {"seen": "yes"}}}'},
}
PATCHED = {
    "patchType": "JSONPatch",
    "jsonPatch": {"expression": '[JSONPatch{op: "add", path: "/metadata/labels", value: {"seen": "yes"}}]'},
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as made:
        yield made


async def lines(server: ApiUnderTest, name: str, *, seen: bool) -> int:
    """Return the lines that the event loop's thread executes for a large Deployment."""
    variables = [{"name": f"N{number}", "value": "x"} for number in range(MANY)]
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "env": variables}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pod}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    with Lines() as counted:
        made = await server.request("POST", "/apis/apps/v1/namespaces/default/deployments", body)
    assert made.status == 201, made.body
    assert made.json["metadata"].get("labels") == ({"seen": "yes"} if seen else None)
    return counted.count


async def configure(server: ApiUnderTest, plural: str, kind: str, body: Object) -> None:
    made = await server.request("POST", f"/apis/{GROUP}/{plural}", {"apiVersion": GROUP, "kind": kind, **body})
    assert made.status == 201, made.body


async def test_a_mutating_webhook_changes_a_large_object_outside_the_event_loop(
    server: ApiUnderTest, tmp_path: Path
) -> None:
    await lines(server, "first", seen=False)  # imports
    without = await lines(server, "a", seen=False)
    (tmp_path / "hook").mkdir()
    async with webhook(tmp_path / "hook") as hook:
        hook.answers["/mutate"] = patching(LABEL)
        one: Object = {
            "name": "h.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "reinvocationPolicy": "IfNeeded",
            "clientConfig": hook.client("/mutate"),
            "rules": [RULE],
        }
        kind = "MutatingWebhookConfiguration"
        await configure(server, f"{kind.lower()}s", kind, {"metadata": {"name": "w"}, "webhooks": [one]})
        await lines(server, "second", seen=True)
        assert await lines(server, "b", seen=True) - without < LINES_OF_A_CALL


@pytest.mark.parametrize("mutation", [APPLIED, PATCHED], ids=["ApplyConfiguration", "JSONPatch"])
async def test_a_mutating_policy_changes_a_large_object_outside_the_event_loop(
    server: ApiUnderTest, mutation: Object
) -> None:
    await lines(server, "first", seen=False)
    without = await lines(server, "a", seen=False)
    spec = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": [RULE]},
        "mutations": [mutation],
    }
    kind = "MutatingAdmissionPolicy"
    await configure(server, "mutatingadmissionpolicies", kind, {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    await configure(server, "mutatingadmissionpolicybindings", f"{kind}Binding", binding)
    await lines(server, "second", seen=True)
    assert await lines(server, "b", seen=True) - without < LINES_OF_A_CALL
