"""Section 3: authentication of users, and the audit policy."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from control.auth.audit_policy import LEVELS, Policy, PolicyError
from control.auth.user import AuthzAttributes, UserInfo
from wherry.security.facts import Facts
from wherry.security.rows import Check, CheckResult, failed, judge, listed, passed

_PROVIDER = "an identity provider: `/etc/wherry/authentication.yaml` (docs/security.md)"
_SOMEBODY = UserInfo("somebody", groups=("system:authenticated",))


def _people(facts: Facts) -> CheckResult:
    for flag in ("authentication-config", "oidc-issuer-url", "authentication-token-webhook-config-file"):
        if facts.flags.get(flag):
            return passed(f"configured: --{flag}")
    return judge("users can only use client certificates, which cannot be revoked", _PROVIDER)


def _account_tokens(facts: Facts) -> CheckResult:
    kept = [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in facts.of("TokenSecret")]
    if kept:
        return judge(f"tokens without expiry are stored: {listed(kept)}", "delete those that users authenticate with")
    return passed("no token without expiry is stored")


def _bootstrap_tokens(facts: Facts) -> CheckResult:
    lasting = [each["metadata"]["name"] for each in facts.of("BootstrapToken") if not _text(each, "expiration")]
    if lasting:
        return judge(f"no expiry: {listed(lasting)}", "`wherry token delete` once all machines have joined")
    groups = {_text(each, "auth-extra-groups") for each in facts.of("BootstrapToken")} - {""}
    return passed(f"{len(facts.of('BootstrapToken'))} tokens, all expire" + (f"; {listed(groups)}" if groups else ""))


def _text(secret: dict[str, dict[str, str]], key: str) -> str:
    try:
        return base64.b64decode((secret.get("data") or {}).get(key, "")).decode()
    except (binascii.Error, ValueError):
        return ""


def _policy(facts: Facts) -> Policy | None:
    file = facts.flags.get("audit-policy-file")
    return Policy.parse(Path(file).read_bytes()) if file else None


def _minimal(facts: Facts) -> CheckResult:
    if _policy(facts) is None:
        return failed("there is no audit policy", "`/etc/wherry/audit-policy.yaml`: docs/security.md")
    return passed(facts.flags["audit-policy-file"])


def _covers(facts: Facts) -> CheckResult:
    """Evaluate the policy for the requests that the benchmark names."""
    try:
        policy = _policy(facts)
    except PolicyError as error:
        return failed(str(error), "correct the file")
    if policy is None:
        return failed("there is no audit policy", "`/etc/wherry/audit-policy.yaml`: docs/security.md")
    missing, disclosed = [], []
    for resource, subresource, group, verb, most in (
        ("secrets", "", "", "get", "Metadata"),
        ("configmaps", "", "", "update", "Metadata"),
        ("tokenreviews", "", "authentication.k8s.io", "create", "Metadata"),
        ("serviceaccounts", "token", "", "create", "Metadata"),
        ("pods", "", "", "create", "RequestResponse"),
        ("deployments", "", "apps", "patch", "RequestResponse"),
        ("pods", "exec", "", "create", "RequestResponse"),
        ("pods", "portforward", "", "create", "RequestResponse"),
        ("pods", "proxy", "", "get", "RequestResponse"),
        ("services", "proxy", "", "get", "RequestResponse"),
    ):
        name = f"{resource}/{subresource}" if subresource else resource
        attributes = AuthzAttributes(
            user=_SOMEBODY,
            verb=verb,
            group=group,
            resource=resource,
            subresource=subresource,
            namespace="default",
            name="x",
        )
        verdict = policy.verdict(attributes)
        if verdict is None:
            missing.append(f"{verb} {name}")
        elif LEVELS.index(verdict.level) > LEVELS.index(most):
            disclosed.append(name)
    if missing:
        return failed(f"not logged: {', '.join(missing)}", f"add rules to `{facts.flags['audit-policy-file']}`")
    if disclosed:
        return failed(f"the log contains the contents of {', '.join(disclosed)}", "level Metadata for them")
    return passed("secrets and config maps without contents; pods, exec, port-forward and proxies")


CHECKS = (
    Check(
        "3.1.1",
        "Users do not authenticate with client certificates",
        _people,
        "depends on you: configure an identity provider",
    ),
    Check("3.1.2", "Users do not authenticate with service account tokens", _account_tokens),
    Check(
        "3.1.3",
        "Users do not authenticate with bootstrap tokens",
        _bootstrap_tokens,
        "passes; join tokens expire after a day",
    ),
    Check("3.2.1", "There is an audit policy", _minimal),
    Check("3.2.2", "The audit policy covers key security concerns", _covers),
)
