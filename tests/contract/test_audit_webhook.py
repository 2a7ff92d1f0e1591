"""Audit events sent to another program, over real HTTPS."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kube.json_object import Object
from tests.support.control import ADMIN, api_server
from tests.support.reviewer import Reviewer, reviewer

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  users: [kubernetes-admin]
  resources: [{resources: [configmaps]}]
"""


def events(hook: Reviewer) -> list[Object]:
    """Return all events that came, in order."""
    for body in hook.at("/audit"):
        assert (body["kind"], body["apiVersion"]) == ("EventList", "audit.k8s.io/v1")
    return [event for body in hook.at("/audit") for event in body["items"]]


def changes(directory: Path, hook: Reviewer, **more: Any) -> dict[str, Any]:
    policy = directory / "policy.yaml"
    policy.write_text(POLICY if "policy" not in more else more.pop("policy"))
    return {"audit_policy_file": policy, "audit_webhook_file": hook.kubeconfig("/audit"), **more}


async def test_events_come_in_batches_and_are_sent_again_after_a_failure(tmp_path: Path) -> None:
    async with reviewer(tmp_path) as hook:
        hook.answers["/audit"] = lambda spec: {}
        hook.failures = [503]
        settings = {"audit_webhook_batch_max_size": 3, "audit_webhook_initial_backoff": 0.01}
        async with api_server(tmp_path, **changes(tmp_path, hook, **settings)) as api:
            for name in ("a", "b", "c"):
                await api.request("POST", CONFIGMAPS, {"metadata": {"name": name}, "data": {"k": name}})
            async with asyncio.timeout(30):
                while len(hook.at("/audit")) < 2:
                    await asyncio.sleep(0.01)
            first, again = hook.at("/audit")
            assert first == again, "a batch that was not taken comes again"
            assert [event["objectRef"]["resource"] for event in first["items"]] == ["configmaps"] * 3
            assert [event["requestObject"]["data"]["k"] for event in first["items"]] == ["a", "b", "c"]
            await api.request("GET", f"{CONFIGMAPS}/a")
            assert len(hook.at("/audit")) == 2, "the last one waits for others"
        assert events(hook)[-1]["verb"] == "get", "what waits is sent before the server ends"


async def test_a_blocking_webhook_gets_the_event_before_the_response_is_sent(tmp_path: Path) -> None:
    async with reviewer(tmp_path) as hook:
        hook.answers["/audit"] = lambda spec: {}
        async with api_server(tmp_path, **changes(tmp_path, hook, audit_webhook_mode="blocking")) as api:
            hook.held.clear()
            requesting = asyncio.ensure_future(api.request("POST", CONFIGMAPS, {"metadata": {"name": "a"}}))
            async with asyncio.timeout(30):
                while not hook.at("/audit"):
                    await asyncio.sleep(0.01)
            assert not requesting.done()
            hook.held.set()
            assert (await requesting).status == 201
            hook.failures = [400]
            assert (await api.request("GET", f"{CONFIGMAPS}/a")).status == 200, "a failure does not undo what was done"


@pytest.mark.parametrize(("mode", "status"), [("blocking", 201), ("blocking-strict", 500)])
async def test_a_strict_webhook_must_take_note_of_a_request_first(tmp_path: Path, mode: str, status: int) -> None:
    policy = POLICY.replace("omitStages: [RequestReceived]", "")
    async with reviewer(tmp_path) as hook:
        hook.answers["/audit"] = lambda spec: {}
        async with api_server(tmp_path, **changes(tmp_path, hook, audit_webhook_mode=mode, policy=policy)) as api:
            hook.failures = [400]
            answer = await api.request("POST", CONFIGMAPS, {"metadata": {"name": "a"}}, user=ADMIN)
            assert answer.status == status
            metrics = (await api.request("GET", "/metrics")).body.decode()
            assert 'apiserver_audit_error_total{plugin="webhook"}' in metrics
            assert "apiserver_audit_event_total" in metrics and "apiserver_audit_requests_rejected_total" in metrics
