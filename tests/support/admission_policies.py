"""Admission policies and their bindings on a server of the contract tests."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kube.json_object import Object
from tests.support.control import ApiUnderTest, api_server

MAPS = "/api/v1/namespaces/default/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}
VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"


@contextlib.asynccontextmanager
async def policy_server(directory: Path) -> AsyncIterator[ApiUnderTest]:
    """Start a server that audits creations in audit.log of its directory."""
    policy = directory / "audit.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [create]}]\n")
    async with api_server(directory, audit_policy_file=policy, audit_log_file=directory / "audit.log") as api:
        yield api


async def delete_policies(server: ApiUnderTest) -> None:
    """Delete all policies, bindings and webhooks."""
    for plural in (
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "validatingwebhookconfigurations",
    ):
        await server.request("DELETE", f"{GROUP}/{plural}")


def policy_of(kind: str, spec: Object, name: str = "rule") -> Object:
    full = {"matchConstraints": {"resourceRules": [RULE]}, **spec}
    if kind == MUTATING:
        full.setdefault("reinvocationPolicy", "Never")
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": full,
    }


def path_of(kind: str) -> str:
    return f"{GROUP}/{kind.lower().replace('policybinding', 'policybindings').removesuffix('policy')}" + (
        "policies" if kind.endswith("Policy") else ""
    )


async def establish(
    server: ApiUnderTest, spec: Object, binding: Object | None = None, kind: str = VALIDATING, name: str = "rule"
) -> None:
    """Make a policy and its binding."""
    made = await server.request("POST", path_of(kind), policy_of(kind, spec, name))
    assert made.status == 201, made.body
    bound = {"policyName": name, **(binding or {})}
    if kind == VALIDATING:
        bound.setdefault("validationActions", ["Deny"])
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": f"{name}-everywhere"},
        "spec": bound,
    }
    made = await server.request("POST", path_of(f"{kind}Binding"), body)
    assert made.status == 201, made.body


async def create(server: ApiUnderTest, name: str, data: Object | None = None, **metadata: Any) -> Any:
    given = {"a": "1"} if data is None else data
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": given}
    return await server.request("POST", f"{MAPS}?dryRun=All", body)
