"""ImagePolicyWebhook against a real program: requests, effects of responses, and failures.

And who the server is to admission webhooks.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from control.admission.image_policy import ImagePolicyWebhook
from control.admission.webhooks.caller import Caller
from control.admission.webhooks.credentials import Credential, Credentials
from control.auth.webhooks import client as settings
from kube.clock import SystemClock
from kube.errors import StatusError
from kube.json_object import Object
from kube.tls_files import FromFiles
from tests.support.clock import FakeClock
from tests.support.lookup import Objects, attributes
from tests.support.reviewer import reviewer


class Clock(SystemClock):
    """Waits for nothing between tries."""

    async def sleep(self, seconds: float) -> None:
        return None


def pod(image: str) -> Object:
    annotations = {"team.image-policy.k8s.io/ticket": "1", "other": "2"}
    metadata = {"name": "p", "namespace": "shop", "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": image}]}}


async def test_the_image_policy_webhook_decides_and_is_called_once_for_the_same_images(tmp_path: Path) -> None:
    async with reviewer(tmp_path) as hook:
        hook.answers["/images"] = lambda spec: {
            "allowed": spec["containers"][0]["image"] == "good",
            "reason": "it was not signed",
            "auditAnnotations": {"seen": "yes"},
        }
        reported = {"imagePolicy": {"kubeConfigFile": str(hook.kubeconfig("/images")), "denyTTL": -1}}
        plugin = ImagePolicyWebhook(reported, FakeClock())
        request = attributes("pods", obj=pod("good"))
        await plugin.validate(request)
        await plugin.validate(attributes("pods", obj=pod("good")))
        (requested,) = hook.at("/images")
        assert (requested["apiVersion"], requested["kind"]) == ("imagepolicy.k8s.io/v1alpha1", "ImageReview")
        assert requested["spec"] == {
            "containers": [{"image": "good"}],
            "annotations": {"team.image-policy.k8s.io/ticket": "1"},
            "namespace": "shop",
        }
        assert request.annotations == {"ImagePolicyWebhook/seen": "yes"}
        for _ in range(2):  # refusals are not kept here
            with pytest.raises(StatusError, match="webhook backend denied one or more images: it was not signed"):
                await plugin.validate(attributes("pods", obj=pod("bad")))
        assert len(hook.at("/images")) == 3
        old = pod("bad")
        await plugin.validate(attributes("pods", "UPDATE", pod("bad"), old))  # nothing new to ask about
        await plugin.close()


@pytest.mark.parametrize("default", [True, False])
async def test_without_an_answer_the_default_decides(tmp_path: Path, default: bool) -> None:
    async with reviewer(tmp_path) as hook:
        hook.failures = [500] * 9
        reported = {"imagePolicy": {"kubeConfigFile": str(hook.kubeconfig("/images")), "defaultAllow": default}}
        plugin, request = ImagePolicyWebhook(reported, Clock()), attributes("pods", obj=pod("any"))
        if default:
            await plugin.validate(request)
            assert request.annotations == {"ImagePolicyWebhook/failed-open": "true"}
        else:
            with pytest.raises(StatusError, match="answered 500"):
                await plugin.validate(request)
        await plugin.close()


async def test_a_pod_whose_images_cannot_be_asked_about_is_not_admitted_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "PLACES_OF_ONE", 1)
    monkeypatch.setattr(settings, "MOST_WAITING", 1)
    async with reviewer(tmp_path) as hook:
        hook.held.clear()
        hook.answers["/images"] = lambda spec: {"allowed": False}
        reported = {"imagePolicy": {"kubeConfigFile": str(hook.kubeconfig("/images")), "defaultAllow": True}}
        plugin = ImagePolicyWebhook(reported, FakeClock())
        tasks = [
            asyncio.create_task(plugin.validate(attributes("pods", obj=pod(name)))) for name in ("one", "two", "three")
        ]
        with pytest.raises(StatusError, match="too many requests wait for a webhook") as refused:
            await tasks.pop()
        assert refused.value.code == 429
        hook.held.set()
        for task in tasks:
            with pytest.raises(StatusError, match="rejected by webhook backend"):
                await task
        await plugin.close()


async def test_a_webhook_is_shown_the_credential_that_is_meant_for_its_host(tmp_path: Path) -> None:
    async with reviewer(tmp_path) as hook:
        cluster = yaml.safe_load(hook.kubeconfig("/hook").read_text())["clusters"][0]["cluster"]
        client = {"url": cluster["server"], "caBundle": cluster["certificate-authority-data"]}
        caller = Caller(Objects())
        await caller.call(client, {}, 10)
        caller.credentials = Credentials({f"127.0.0.1:{hook.port}": FromFiles(lambda: Credential("Bearer ours"), [])})
        await caller.call(client, {}, 10)
        assert [headers.get("Authorization") for headers in hook.headers] == [None, "Bearer ours"]
        await caller.close()
