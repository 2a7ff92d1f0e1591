"""Changes that concern a few objects: controllers look at no others, however many there are."""

from __future__ import annotations

from typing import Any

import pytest

from control.auth.secret_tokens import NAME_ANNOTATION, SECRET_TYPE
from control.controllers.account_tokens import AccountTokenController
from control.controllers.context import Context
from control.controllers.disruption import DisruptionController
from kube import pki
from kube.api import apps_v1, core_v1, meta_v1, policy_v1
from kube.controller import Controller
from tests.support.clock import FakeClock, settle
from tests.support.lagging_api import LaggingAPI
from tests.support.working import working


@pytest.fixture
def enqueued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys that are enqueued in any controller."""
    keys: list[str] = []
    enqueue = Controller.enqueue

    def noted(self: Controller, key: str, *arguments: Any) -> None:
        keys.append(key)
        enqueue(self, key, *arguments)

    monkeypatch.setattr(Controller, "enqueue", noted)
    return keys


def account(name: str, uid: str = "u", **annotations: str) -> core_v1.ServiceAccount:
    metadata = meta_v1.ObjectMeta(name=name, namespace="default", uid=uid, annotations=annotations)
    return core_v1.ServiceAccount(metadata=metadata)


async def test_tokens_of_an_account_are_looked_at_when_it_comes_goes_or_is_another(enqueued: list[str]) -> None:
    api = LaggingAPI()
    api.put(account("web"))
    api.put(account("other"))
    for name, owner in (("a", "web"), ("b", "other"), ("c", "gone")):
        metadata = meta_v1.ObjectMeta(name=name, namespace="default", annotations={NAME_ANNOTATION: owner})
        api.put(core_v1.Secret(metadata=metadata, type=SECRET_TYPE))
    key = pki.encode_key(pki.new_key()).decode()

    def controller(context: Context) -> AccountTokenController:
        return AccountTokenController(context, key, "ca")

    async with working(api, FakeClock(), controller):
        enqueued.clear()
        api.put(account("web", note="changed"))
        await settle(50)
        assert enqueued == []
        api.put(account("web", uid="another"))
        await settle(50)
        assert enqueued[0] == "default/a" and "default/b" not in enqueued


async def test_a_workload_that_is_scaled_concerns_the_budgets_of_its_pods(enqueued: list[str]) -> None:
    api = LaggingAPI()
    for name in ("web", "other"):
        selector = meta_v1.LabelSelector(match_labels={"app": name})
        metadata = meta_v1.ObjectMeta(name=name, namespace="default")
        spec = policy_v1.PodDisruptionBudgetSpec(max_unavailable=1, selector=selector)
        api.put(policy_v1.PodDisruptionBudget(metadata=metadata, spec=spec))

    def workload(replicas: int, **labels: str) -> apps_v1.ReplicaSet:
        template = core_v1.PodTemplateSpec(metadata=meta_v1.ObjectMeta(labels={"app": "web"}))
        metadata = meta_v1.ObjectMeta(name="r", namespace="default", labels=labels)
        return apps_v1.ReplicaSet(metadata=metadata, spec=apps_v1.ReplicaSetSpec(replicas=replicas, template=template))

    api.put(workload(1))
    async with working(api, FakeClock(), DisruptionController):
        enqueued.clear()
        api.put(workload(1, note="changed"))
        await settle(50)
        assert enqueued == []
        api.put(workload(2))
        await settle(50)
        assert set(enqueued) == {"default/web"}
