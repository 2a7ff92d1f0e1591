"""The server reads the configuration that docs/security.md shows."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import yaml

from control.admission.configuration import load
from control.admission.plugins import IDLE, OFF_BY_DEFAULT, PluginContext, make
from control.admission.webhooks.caller import Caller
from control.admission.webhooks.invoker import WebhookInvoker
from control.auth import abac
from control.auth.audit_policy import Policy
from control.auth.authorization_configuration import parse as parse_authorization
from control.auth.configuration import parse
from control.auth.rbac import RBACAuthorizer
from control.auth.user import AuthzAttributes, Decision, UserInfo
from control.registry.strategies import strategy_for
from control.registry.strategy_context import Settings
from control.storage import encryption_configuration
from kube.resources import RESOURCES, by_kind
from tests.support.lookup import Objects

TEXT = (Path(__file__).parents[4] / "docs" / "security.md").read_text()
AUTHENTICATION, AUTHORIZATION, ADMISSION, POLICY, AUDIT, ENCRYPTION, KMS = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
(ABAC,) = re.findall(r"```\n(\{.*?)```", TEXT, re.S)


def test_the_authentication_configuration_in_the_documentation_is_read() -> None:
    [issuer] = parse(AUTHENTICATION).issuers
    assert (issuer.url, issuer.username.prefix, issuer.required) == (
        "https://id.example.com",
        "oidc:",
        {"hd": "example.com"},
    )


def test_the_authorization_configuration_in_the_documentation_is_read() -> None:
    assert [entry.type for entry in parse_authorization(AUTHORIZATION)] == ["Node", "RBAC", "Webhook"]


def test_the_policy_file_in_the_documentation_is_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.jsonl"
    file.write_text(ABAC)
    allowed = abac.load(file)
    requested = AuthzAttributes(user=UserInfo("jane"), verb="list", version="v1", resource="pods", namespace="shop")
    assert allowed.authorize(requested)[0] is Decision.ALLOW
    metrics = AuthzAttributes(user=UserInfo("bob", "", ("monitors",)), verb="get", path="/metrics/slis")
    assert allowed.authorize(metrics)[0] is Decision.ALLOW


def test_the_admission_plugins_take_the_configuration_in_the_documentation(tmp_path: Path) -> None:
    file = tmp_path / "admission.yaml"
    file.write_text(ADMISSION)
    reported, objects, rbac = load(file), Objects(), RBACAuthorizer()
    around = PluginContext(objects, rbac, rbac, WebhookInvoker(objects, Caller(objects), rbac), reported)
    assert {"PodSecurity", "ResourceQuota", "EventRateLimit"} <= {p.name for p in make(around, ("EventRateLimit",))}
    assert all(f"{name}" in TEXT for name in (*OFF_BY_DEFAULT, *IDLE))


def test_the_admission_policy_in_the_documentation_is_valid() -> None:
    policy, binding = yaml.safe_load_all(POLICY)
    for obj in (policy, binding):
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        strategy = strategy_for(resource, Settings())
        strategy.default(obj)
        assert strategy.validate(obj) == []
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


def test_the_documented_audit_policy_works_as_described() -> None:
    policy = Policy.parse(AUDIT)
    secret = policy.verdict(
        AuthzAttributes(user=UserInfo("jane"), verb="get", version="v1", resource="secrets", namespace="a", name="b")
    )
    assert secret is not None and secret.level == "Metadata"
    assert (
        policy.verdict(
            AuthzAttributes(user=UserInfo("system:kube-scheduler"), verb="get", version="v1", resource="pods")
        )
        is None
    )


def test_the_encryption_configuration_in_the_documentation_is_read() -> None:
    secret = base64.b64encode(b"0" * 32).decode()
    text = ENCRYPTION.replace("<base64 of 32 random bytes>", secret).encode()
    encryption = encryption_configuration.parse(text, {r.target: r.storage_prefix for r in RESOURCES})
    assert encryption.encrypt("/registry/secrets/a/b", b"{}").startswith(b"k8s:enc:aesgcm:v1:key1:")
    assert encryption.decrypt("/registry/secrets/a/b", b"{}") == b"{}"


async def test_the_plugin_in_the_documentation_is_read() -> None:
    text = ENCRYPTION[: ENCRYPTION.index("  providers:")] + KMS
    found = encryption_configuration.parse(text.encode(), {r.target: r.storage_prefix for r in RESOURCES})
    [provider] = found.remote
    assert provider.prefix == b"k8s:enc:kms:v2:vault:"
    await found.close()
