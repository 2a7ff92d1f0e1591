"""Cost of a report of policies that cannot be enforced, in lines of Python."""

from __future__ import annotations

from tests.support.policies import pod, policy
from tests.unit.cost.test_policy_selectors import Loop
from tests.unit.cost.test_proxy_products import Steps


async def lines_of_a_report(pods: int) -> int:
    loop = Loop()
    await loop.tell(*(pod(f"p{number}", namespace="evil", node="node-2") for number in range(pods)))
    refused = [{"from": [{"podSelector": {}}] * 100, "ports": [{"port": 1}] * 100}]
    await loop.tell(*(policy(f"p{number}", "evil", ingress=refused) for number in range(50)))
    assert len(loop.enforcer._failures._unreported) == 50
    with Steps() as steps:
        loop.enforcer._failures.report()
    return steps.count


async def test_policies_that_wait_for_a_pod_of_this_node_do_not_cost_those_of_others() -> None:
    few, many = await lines_of_a_report(5), await lines_of_a_report(500)
    assert many < 1.1 * few, (few, many)
