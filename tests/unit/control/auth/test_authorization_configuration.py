"""The file with the chain of authorizers: valid configurations, and the errors of invalid ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from control.auth.authorization_configuration import parse
from control.auth.fields import ConfigurationError
from kube.json_object import Object

HOOK: Object = {
    "authorizedTTL": "1m30s",
    "timeout": "3s",
    "subjectAccessReviewVersion": "v1",
    "matchConditionSubjectAccessReviewVersion": "v1",
    "failurePolicy": "Deny",
    "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/etc/hook.kubeconfig"},
    "matchConditions": [{"expression": "has(request.resourceAttributes)"}],
}
CHAIN: list[Object] = [
    {"type": "Webhook", "name": "hook", "webhook": HOOK},
    {"type": "Node", "name": "node"},
    {"type": "RBAC", "name": "rbac"},
]


def text(authorizers: Any) -> str:
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}
    return yaml.safe_dump({**kind, "authorizers": authorizers})


def changed(index: int, **changes: Any) -> list[Object]:
    chain = copy.deepcopy(CHAIN)
    chain[index].update(changes)
    return chain


def hooked(**changes: Any) -> list[Object]:
    return changed(0, webhook={key: value for key, value in {**HOOK, **changes}.items() if value is not None})


def test_authorizers_come_in_the_files_order_with_its_times() -> None:
    hook, node, rbac = parse(text(CHAIN))
    assert [(e.type, e.name) for e in (hook, node, rbac)] == [("Webhook", "hook"), ("Node", "node"), ("RBAC", "rbac")]
    assert hook.webhook is not None and hook.kubeconfig == Path("/etc/hook.kubeconfig") and hook.timeout == 3
    assert (hook.webhook.authorized_ttl, hook.webhook.unauthorized_ttl) == (90, 30)
    assert hook.webhook.deny_on_failure and len(hook.webhook.conditions) == 1
    [uncached, *_] = parse(text(hooked(cacheAuthorizedRequests=False)))
    assert uncached.webhook is not None and uncached.webhook.authorized_ttl == 0


@pytest.mark.parametrize(
    ("authorizers", "message"),
    [
        ([], "authorizers: Required value"),
        (changed(1, type="ABAC"), 'authorizers[1].type: Unsupported value: "ABAC"'),
        (changed(1, type="RBAC"), 'authorizers[2].type: Duplicate value: "RBAC"'),
        (changed(1, name="rbac"), 'authorizers[2].name: Duplicate value: "rbac"'),
        (changed(1, name=""), "authorizers[1].name: Required value"),
        (changed(1, name="A_b"), 'authorizers[1].name: Invalid value: "A_b"'),
        (changed(1, webhook=HOOK), "authorizers[1].webhook: Invalid value: may only be specified when type=Webhook"),
        (changed(0, webhook=None), "authorizers[0].webhook: Required value"),
        (changed(0, more=1), "authorizers[0].more: unknown field"),
        (hooked(timeout=None), "authorizers[0].webhook.timeout: must be > 0s and <= 30s"),
        (hooked(timeout="31s"), "authorizers[0].webhook.timeout: must be > 0s and <= 30s"),
        (hooked(timeout="3 s"), 'authorizers[0].webhook.timeout: Invalid value: "3 s"'),
        (hooked(failurePolicy=None), "authorizers[0].webhook.failurePolicy: Required value"),
        (hooked(failurePolicy="Allow"), 'authorizers[0].webhook.failurePolicy: Unsupported value: "Allow"'),
        (hooked(subjectAccessReviewVersion="v2"), "subjectAccessReviewVersion: Unsupported value"),
        (hooked(matchConditionSubjectAccessReviewVersion=None), "matchConditionSubjectAccessReviewVersion: Required"),
        (
            hooked(connectionInfo={"type": "InClusterConfig"}),
            'connectionInfo.type: Unsupported value: "InClusterConfig"',
        ),
        (hooked(connectionInfo={"type": "KubeConfigFile"}), "connectionInfo.kubeConfigFile: Required value"),
        (
            hooked(connectionInfo={"type": "KubeConfigFile", "kubeConfigFile": "a"}),
            'kubeConfigFile: Invalid value: "a": must be an absolute path',
        ),
        (hooked(matchConditions=[{"expression": "request.groups"}]), "must evaluate to bool but got list(string)"),
        (
            hooked(matchConditions=[{"expression": "request.x == 1"}]),
            "matchConditions[0].expression: compilation failed",
        ),
        (
            hooked(matchConditions=[{"expression": "true"}] * 2),
            'matchConditions[1].expression: Duplicate value: "true"',
        ),
        (hooked(matchConditions=[{"expression": f"{n} == 1"} for n in range(65)]), "Too many: 65"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_field(authorizers: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(text(authorizers))
    assert message in str(caught.value)


def test_a_running_server_keeps_the_authorizers_that_are_no_webhooks() -> None:
    assert parse(text(list(reversed(CHAIN))), {"Node", "RBAC"})[0].type == "RBAC"
    for chain in (CHAIN[:2], [*CHAIN, {"type": "AlwaysAllow", "name": "all"}]):
        with pytest.raises(ConfigurationError):
            parse(text(chain), {"Node", "RBAC"})
