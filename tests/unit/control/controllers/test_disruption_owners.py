"""Disruption budgets of pods that name owners which are not there: each pod's author may name another one."""

from __future__ import annotations

from control.controllers.disruption import DisruptionController
from kube.api import core_v1, meta_v1, policy_v1
from tests.support.clock import FakeClock, settle
from tests.support.lagging_api import LaggingAPI
from tests.support.working import working


def owned(number: int) -> core_v1.Pod:
    owner = meta_v1.OwnerReference(
        api_version="apps/v1", kind="Deployment", name=f"absent-{number}", uid=f"u{number}", controller=True
    )
    metadata = meta_v1.ObjectMeta(
        name=f"p{number}", namespace="default", labels={"app": "web"}, owner_references=[owner]
    )
    return core_v1.Pod(metadata=metadata)


async def test_a_budget_requests_no_scale_after_the_first_owner_that_is_not_there() -> None:
    api = LaggingAPI()
    for number in range(50):
        api.put(owned(number))
    spec = policy_v1.PodDisruptionBudgetSpec(
        max_unavailable=1, selector=meta_v1.LabelSelector(match_labels={"app": "web"})
    )
    metadata = meta_v1.ObjectMeta(name="b", namespace="default")
    api.put(policy_v1.PodDisruptionBudget(metadata=metadata, spec=spec))
    async with working(api, FakeClock(), DisruptionController):
        await settle(200)
    scales = [path for method, path in api.requests if "/deployments/absent-" in path]
    assert len(set(scales)) == 1 and len(scales) < 5, "once each time that the budget is reconciled"
    [condition] = api.read(policy_v1.PodDisruptionBudget, "b", "default").status.conditions
    assert condition.reason == "SyncFailed" and "found no controllers for pod" in condition.message
