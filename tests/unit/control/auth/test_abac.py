from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from control.auth.abac import ABACAuthorizer, load, parse
from control.auth.authorization_modes import entries
from control.auth.fields import ConfigurationError
from control.auth.user import AuthzAttributes, Decision, UserInfo
from control.config import ControlConfig

JANE = UserInfo("jane", "", ("dev", "system:authenticated"))
NOWHERE = Path("/nowhere")


def line(**spec: Any) -> bytes:
    head = {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy"}
    return json.dumps({**head, "spec": spec}).encode()


def attributes(
    verb: str, resource: str = "pods", namespace: str = "shop", group: str = "", path: str = ""
) -> AuthzAttributes:
    return AuthzAttributes(
        user=JANE,
        verb=verb,
        group=group,
        version="v1",
        resource="" if path else resource,
        namespace=namespace,
        path=path,
    )


@pytest.mark.parametrize(
    ("spec", "question", "allowed"),
    [
        ({"user": "jane", "namespace": "shop", "resource": "pods"}, attributes("create"), True),
        ({"user": "jane", "namespace": "shop", "resource": "pods", "readonly": True}, attributes("create"), False),
        ({"user": "jane", "namespace": "shop", "resource": "pods", "readonly": True}, attributes("watch"), True),
        ({"user": "jane", "namespace": "other", "resource": "pods"}, attributes("get"), False),
        ({"user": "bob", "namespace": "*", "resource": "*", "apiGroup": "*"}, attributes("get"), False),
        ({"group": "dev", "namespace": "*", "resource": "*", "apiGroup": "*"}, attributes("get", group="apps"), True),
        ({"group": "dev", "namespace": "*", "resource": "*"}, attributes("get", group="apps"), False),
        ({"user": "jane", "group": "ops", "namespace": "*", "resource": "*"}, attributes("get"), False),
        ({"user": "*", "nonResourcePath": "/version"}, attributes("get", path="/version"), True),
        ({"user": "*", "nonResourcePath": "/metrics*"}, attributes("get", path="/metrics/slis"), True),
        ({"user": "*", "nonResourcePath": "*"}, attributes("get"), False),
        ({"namespace": "*", "resource": "*", "apiGroup": "*"}, attributes("get"), False),
    ],
)
def test_a_policy_allows_what_it_names(spec: dict[str, Any], question: AuthzAttributes, allowed: bool) -> None:
    decision, reason = ABACAuthorizer((parse(line(**spec)),)).authorize(question)
    assert decision is (Decision.ALLOW if allowed else Decision.NO_OPINION)
    assert reason == ("" if allowed else "No policy matched.")


def test_what_a_user_may_do_can_be_listed() -> None:
    allowed = ABACAuthorizer(
        tuple(
            map(
                parse,
                (
                    line(user="jane", namespace="*", resource="pods", readonly=True),
                    line(group="dev", namespace="other", resource="*", apiGroup="*"),
                    line(user="bob", namespace="*", resource="*"),
                    line(user="*", namespace="*", nonResourcePath="/version"),
                ),
            )
        )
    )
    assert allowed.rules_for(JANE, "shop") == [
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]},
        {"verbs": ["*"], "nonResourceURLs": ["/version"]},
    ]


def test_comments_are_passed_over_and_a_bad_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "policy.jsonl"
    file.write_bytes(b"# who may what\n\n" + line(user="jane", nonResourcePath="*") + b"\n")
    assert load(file).authorize(attributes("get", path="/x"))[0] is Decision.ALLOW
    file.write_bytes(line(user="jane") + b'\n{"kind": "Policy"}\n')
    with pytest.raises(ConfigurationError, match="line 2"):
        load(file)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"authorization_modes": ()}, "at least one authorization-mode must be passed"),
        ({"authorization_modes": ("RBAC", "Magic")}, '"Magic" is not a valid mode'),
        ({"authorization_modes": ("RBAC", "RBAC")}, "more than once"),
        ({"authorization_modes": ("ABAC",)}, "authorization-mode ABAC's authorization config file not passed"),
        ({"authorization_policy_file": NOWHERE}, "--authorization-policy-file without mode ABAC"),
        ({"authorization_webhook_file": NOWHERE}, "--authorization-webhook-config-file without mode Webhook"),
    ],
)
def test_modes_that_cannot_be_meant_stop_the_server(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        entries(ControlConfig(NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE, **changes))
    assert why in str(caught.value)


def test_authorization_modes_are_evaluated_in_their_order() -> None:
    modes = ("Node", "ABAC", "Webhook")
    config = ControlConfig(
        *[NOWHERE] * 5,
        authorization_modes=modes,
        authorization_policy_file=NOWHERE,
        authorization_webhook_file=NOWHERE,
    )
    found = entries(config)
    assert [entry.type for entry in found] == list(modes)
    assert found[2].webhook is not None and found[2].webhook.version == "v1beta1" and found[2].kubeconfig == NOWHERE
