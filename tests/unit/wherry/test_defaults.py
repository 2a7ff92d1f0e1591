"""Audit and limits of the API server of `wherry up` by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from control.admission.event_rate_limit import EventRateLimit
from control.auth.audit_policy import Policy
from control.auth.service_account_names import groups_of
from control.auth.user import AuthzAttributes, UserInfo
from control.controllers.identities import SCHEDULER, account_user
from wherry import defaults
from wherry.control_settings import control_config
from wherry.settings import Settings

JANE = UserInfo("jane", groups=("system:authenticated",))
NODE = UserInfo("system:node:n1", groups=("system:nodes", "system:authenticated"))
LEASES, EVENTS = ("coordination.k8s.io", "leases"), ("events.k8s.io", "events")


def settings(prefix: Path) -> Settings:
    return Settings(prefix=str(prefix), node_ip="192.0.2.1")


@pytest.mark.parametrize(
    ("user", "verb", "resource", "namespace", "noted"),
    [
        (JANE, "get", ("", "secrets"), "default", True),
        (JANE, "list", ("", "configmaps"), "default", True),
        (JANE, "create", ("authentication.k8s.io", "tokenreviews"), "", True),
        (JANE, "create", ("", "events"), "default", True),
        (JANE, "update", LEASES, "default", True),
        (NODE, "update", LEASES, "kube-node-lease", False),
        (NODE, "update", LEASES, "kube-system", True),
        (NODE, "delete", LEASES, "kube-node-lease", True),
        (NODE, "create", EVENTS, "default", False),
        (NODE, "get", ("", "secrets"), "default", True),
        (SCHEDULER, "update", LEASES, "kube-system", False),
        (SCHEDULER, "create", EVENTS, "default", False),
        (SCHEDULER, "create", ("", "pods"), "default", True),
        (account_user("job-controller"), "create", ("", "events"), "default", False),
        (account_user("job-controller"), "create", ("", "pods"), "default", True),
        (UserInfo("system:serviceaccount:a:b", groups=groups_of("a")), "create", ("", "events"), "a", True),
    ],
)
def test_everything_is_noted_but_renewals_and_the_machinerys_events(
    user: UserInfo, verb: str, resource: tuple[str, str], namespace: str, noted: bool
) -> None:
    policy = Policy.parse(defaults.AUDIT_POLICY.read_bytes())
    verdict = policy.verdict(
        AuthzAttributes(
            user=user, verb=verb, group=resource[0], version="v1", resource=resource[1], namespace=namespace, name="x"
        )
    )
    assert (verdict is not None) is noted
    assert verdict is None or (verdict.level, verdict.omit_stages) == (
        "Metadata",
        {"RequestReceived", "ResponseStarted"},
    )


@pytest.mark.parametrize(
    ("path", "noted"), [("/healthz", False), ("/readyz/etcd", False), ("/metrics", True), ("/apis", True)]
)
def test_looks_at_health_are_not_noted(path: str, noted: bool) -> None:
    policy = Policy.parse(defaults.AUDIT_POLICY.read_bytes())
    assert (policy.verdict(AuthzAttributes(user=JANE, verb="get", path=path)) is not None) is noted


def test_an_administrators_policy_takes_the_defaults_place(tmp_path: Path) -> None:
    found = control_config(settings(tmp_path))
    assert found.audit_policy_file == defaults.AUDIT_POLICY
    layout = settings(tmp_path).layout
    assert found.audit_log_file == layout.logs / "audit.log"
    assert (found.audit_log_max_bytes, found.audit_log_backups, found.audit_log_max_age) == (
        100 * 1024 * 1024,
        10,
        30 * 24 * 3600,
    )
    layout.etc.mkdir(parents=True)
    own = layout.etc / "audit-policy.yaml"
    own.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n")
    assert control_config(settings(tmp_path)).audit_policy_file == own
    assert (
        Policy.parse(own.read_bytes()).verdict(AuthzAttributes(user=JANE, verb="get", version="v1", resource="secrets"))
        is None
    )


def test_the_rates_of_events_are_a_configuration_that_the_plugin_takes_and_the_documentation_shows(
    tmp_path: Path,
) -> None:
    reported = control_config(settings(tmp_path)).default_admission
    plugin = EventRateLimit(reported["EventRateLimit"], lambda: 0.0)
    assert [limit.type for limit in plugin.limits] == ["Server", "Namespace", "User"]
    text = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    for limit in reported["EventRateLimit"]["limits"]:
        assert f"| {limit['type']} | {limit['qps']} | {limit['burst']} |" in text
