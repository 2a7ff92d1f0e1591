from __future__ import annotations

import pytest

from control import start_steps
from control.server.health import Health


async def test_a_step_of_the_start_fails_its_checks_until_it_is_done() -> None:
    health = Health()
    health.expect(start_steps.ROLES, start_steps.NAMESPACES)
    path = f"/livez/{start_steps.ROLES}"
    assert health.answer(path, {}) == (500, "internal server error: not finished\n")
    code, text = health.answer("/readyz", {}) or (0, "")
    assert code == 500 and "[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n" in text
    health.done(start_steps.ROLES)
    assert health.answer(path, {}) == (200, "ok") and not health.finished.is_set()
    health.done(start_steps.NAMESPACES)
    assert health.finished.is_set() and health.answer("/healthz", {}) == (200, "ok")


async def test_a_step_may_be_left_out_and_all_are_named() -> None:
    health = Health()
    health.expect(start_steps.ROLES)
    code, text = health.answer("/livez", {"exclude": [start_steps.ROLES], "verbose": [""]}) or (0, "")
    assert code == 200 and f"[+]{start_steps.ROLES} excluded: ok\n" in text and text.endswith("livez check passed\n")
    assert health.answer("/livez/poststarthook/other", {}) is None


@pytest.mark.parametrize(
    "step",
    [
        "storage-readiness",
        "start-service-ip-repair-controllers",
        "apiservice-openapi-controller",
        "bootstrap-controller",
    ],
)
def test_the_steps_that_upstreams_test_requires_are_reported(step: str) -> None:
    assert start_steps.HOOK + step in start_steps.STEPS
