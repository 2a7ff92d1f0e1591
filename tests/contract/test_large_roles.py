"""Large roles and bindings over a real server: they take effect when they are compiled, and are known after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from control.auth import bound_subjects
from control.auth.rbac import LARGE_ROLE
from tests.support.control import ApiUnderTest, api_server

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
JANE = ("jane", ("dev",))


def role(*verbs: str) -> dict[str, Any]:
    rules = [{"verbs": ["get"], "apiGroups": ["x"], "resources": [f"r{n}"]} for n in range(LARGE_ROLE)]
    rules.append({"verbs": list(verbs), "apiGroups": [""], "resources": ["pods"]})
    return {"metadata": {"name": "large"}, "rules": rules}


def binding() -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    users = [*(f"u{n}" for n in range(bound_subjects.LARGE)), "jane"]
    return {
        "metadata": {"name": "large"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "large"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user} for user in users],
    }


async def becomes(server: ApiUnderTest, status: int) -> None:
    async with asyncio.timeout(60):
        while (await server.request("GET", PODS, user=JANE)).status != status:
            await asyncio.sleep(0.02)


@pytest.mark.timeout(200)
async def test_a_large_role_and_its_binding_take_effect_and_are_revoked(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        assert (await server.request("POST", f"{RBAC}/roles", role("list"))).status == 201
        assert (await server.request("POST", f"{RBAC}/rolebindings", binding())).status == 201
        await becomes(server, 200)
        assert (await server.request("PUT", f"{RBAC}/roles/large", role("watch"))).status == 200
        await becomes(server, 403)
        assert (await server.request("PUT", f"{RBAC}/roles/large", role("list"))).status == 200
        await becomes(server, 200)
    async with api_server(tmp_path) as server:
        assert (await server.request("GET", PODS, user=JANE)).status == 200, "at once"
        assert (await server.request("DELETE", f"{RBAC}/rolebindings/large")).status == 200
        await becomes(server, 403)
        assert (await server.request("POST", f"{RBAC}/rolebindings", binding())).status == 201
        await becomes(server, 200)
        assert (await server.request("DELETE", f"{RBAC}/roles/large")).status == 200
        await becomes(server, 403)
