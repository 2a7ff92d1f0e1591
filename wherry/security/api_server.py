"""Section 1.2: the API server, by its effective flags and its responses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

from wherry.security.facts import Facts
from wherry.security.rows import Check, CheckResult, failed, judge, not_here, passed

FILE = "/etc/wherry/apiserver.yaml"
_EXTEND = "service-account-extend-token-expiration"
_BUILT_IN = "built in and not configurable"
_OFF_WITHOUT_POLICY = "`/etc/wherry/audit-policy.yaml` enables the audit log: docs/security.md"


def names_files(*flags: str) -> Callable[[Facts], CheckResult]:
    """Return a check that flags name existing files."""

    def look(facts: Facts) -> CheckResult:
        for flag in flags:
            value = facts.flags.get(flag, "")
            if not value:
                return failed(f"--{flag} is not set", f"name the file with `{flag}`")
            if not Path(value).exists():
                return failed(f"--{flag} names {value}, which does not exist", "`wherry up` writes it")
        return passed(", ".join(facts.flags[flag] for flag in flags))

    return look


def _plugin(name: str, why: str = "") -> Callable[[Facts], CheckResult]:
    def look(facts: Facts) -> CheckResult:
        if name in facts.plugins:
            return passed()
        fix = f"add {name} to enable-admission-plugins in {FILE}"
        return judge(why, fix) if why else failed("disabled", fix)

    return look


def _mode(name: str) -> Callable[[Facts], CheckResult]:
    def look(facts: Facts) -> CheckResult:
        if name in facts.authorizers:
            return passed(", ".join(facts.authorizers))
        return failed(f"the authorizers are {', '.join(facts.authorizers)}", f"add {name} to authorization-mode")

    return look


def _at_least(flag: str, wanted: int) -> Callable[[Facts], CheckResult]:
    """Return a check that a number is at least the benchmark's."""

    def look(facts: Facts) -> CheckResult:
        if not facts.flags.get("audit-policy-file"):
            return failed("there is no audit log", _OFF_WITHOUT_POLICY)
        value = int(facts.flags.get(flag) or 0)
        return passed(str(value)) if value >= wanted else failed(f"it is {value}", f"`{flag}: {wanted}` in {FILE}")

    return look


def _anonymous(facts: Facts) -> CheckResult:
    if facts.flags.get("anonymous-auth") == "true" or facts.probed.api_anonymous != 401:
        return failed(
            f"a request without credentials got {facts.probed.api_anonymous or 'no answer'} for /api",
            f"remove anonymous-auth from {FILE}",
        )
    return passed("a request without credentials got 401")


def _static_tokens(facts: Facts) -> CheckResult:
    if file := facts.flags.get("token-auth-file"):
        return failed(f"{file} has tokens that never expire", f"`rm {file}` and start again")
    return passed()


def _always_allow(facts: Facts) -> CheckResult:
    if "AlwaysAllow" in facts.authorizers or not facts.authorizers:
        return failed(f"the authorizers are {', '.join(facts.authorizers)}", "`authorization-mode: Node,RBAC`")
    return passed(", ".join(facts.authorizers))


def _always_admit(facts: Facts) -> CheckResult:
    if "AlwaysAdmit" in facts.plugins:
        return failed("enabled", f"remove AlwaysAdmit from enable-admission-plugins in {FILE}")
    return passed()


def _profiling(facts: Facts) -> CheckResult:
    if facts.probed.api_profiling != 404:
        return failed(f"/debug/pprof/ answers {facts.probed.api_profiling}", "`profiling: false`")
    return passed("/debug/pprof/ does not exist")


def _audit_log(facts: Facts) -> CheckResult:
    if not facts.flags.get("audit-policy-file"):
        return failed("there is no audit policy, so nothing is logged", _OFF_WITHOUT_POLICY)
    return names_files("audit-log-path")(facts)


def _request_timeout(facts: Facts) -> CheckResult:
    value = facts.flags.get("request-timeout", "")
    if value in ("1m0s", "1m", "60s"):
        return passed(value)
    return judge(f"it is {value}", f"`request-timeout: 60s` in {FILE}, unless links are slow")


def _etcd(*flags: str) -> Callable[[Facts], CheckResult]:
    def look(facts: Facts) -> CheckResult:
        return not_here("the store is SQLite") if facts.settings.store == "sqlite" else names_files(*flags)(facts)

    return look


def _encrypted(facts: Facts) -> CheckResult:
    if facts.flags.get("encryption-provider-config"):
        return names_files("encryption-provider-config")(facts)
    return judge("secrets are stored as plain text", "`/etc/wherry/encryption.yaml`: docs/security.md")


def _providers(facts: Facts) -> CheckResult:
    file = facts.flags.get("encryption-provider-config")
    if not file:
        return judge("no encryption provider is configured", "`/etc/wherry/encryption.yaml`: docs/security.md")
    document = yaml.safe_load(Path(file).read_text()) or {}
    for entry in document.get("resources") or []:
        if {"secrets", "*.", "*.*"} & set(entry.get("resources") or []):
            first = next(iter((entry.get("providers") or [{}])[0]), "")
            if first == "identity":
                return failed("identity is the first provider of secrets", f"put another one first in `{file}`")
            return passed(f"secrets are written with {first}")
    return failed("no entry covers secrets", f"add secrets to the resources of `{file}`")


def _ciphers(facts: Facts) -> CheckResult:
    if suite := facts.probed.api_weak_suite:
        return failed(f"it accepted {suite}", f"remove tls-cipher-suites from {FILE}")
    return passed("weak suites were rejected")


def _token_lifetimes(facts: Facts) -> CheckResult:
    if facts.flags.get(_EXTEND) != "false":
        return failed("pods' tokens are valid for a year", f"remove {_EXTEND} from {FILE}")
    return passed("pods' tokens are valid for 3607 s")


CHECKS = (
    Check(
        "1.2.1", "Anonymous requests are rejected", _anonymous, "passes; only health checks and cluster-info are open"
    ),
    Check("1.2.2", "There are no static tokens", _static_tokens),
    Check("1.2.3", "DenyServiceExternalIPs is on", _plugin("DenyServiceExternalIPs")),
    Check(
        "1.2.4",
        "The API server authenticates to kubelets with a certificate",
        names_files("kubelet-client-certificate", "kubelet-client-key"),
    ),
    Check("1.2.5", "Kubelets' certificates are verified", names_files("kubelet-certificate-authority")),
    Check("1.2.6", "Authorization is not AlwaysAllow", _always_allow),
    Check("1.2.7", "The Node authorizer is on", _mode("Node")),
    Check("1.2.8", "RBAC is on", _mode("RBAC")),
    Check("1.2.9", "EventRateLimit is on", _plugin("EventRateLimit")),
    Check("1.2.10", "AlwaysAdmit is off", _always_admit),
    Check(
        "1.2.11",
        "AlwaysPullImages is on",
        _plugin("AlwaysPullImages", "anyone who knows an image's name can use a copy on the node"),
        "off: images loaded without a registry could not start; "
        "the kubelet instead verifies the pull credentials of each pod",
    ),
    Check("1.2.12", "ServiceAccount is on", _plugin("ServiceAccount")),
    Check("1.2.13", "NamespaceLifecycle is on", _plugin("NamespaceLifecycle")),
    Check("1.2.14", "NodeRestriction is on", _plugin("NodeRestriction")),
    Check("1.2.15", "Profiling is off", _profiling, "passes; there is no profiler"),
    Check("1.2.16", "An audit log is written", _audit_log),
    Check("1.2.17", "Audit logs are kept for 30 days", _at_least("audit-log-maxage", 30)),
    Check("1.2.18", "Ten old audit logs are kept", _at_least("audit-log-maxbackup", 10)),
    Check("1.2.19", "Audit logs are rotated at 100 MB", _at_least("audit-log-maxsize", 100)),
    Check("1.2.20", "The request timeout is 60 s", _request_timeout),
    Check(
        "1.2.21", "Tokens of deleted service accounts are rejected", lambda _: passed(_BUILT_IN), "passes; " + _BUILT_IN
    ),
    Check(
        "1.2.22", "Service account tokens are signed with a key pair", names_files("service-account-signing-key-file")
    ),
    Check(
        "1.2.23",
        "The API server authenticates to etcd with a certificate",
        _etcd("etcd-certfile", "etcd-keyfile"),
        "passes with etcd",
    ),
    Check("1.2.24", "The API server has a serving certificate", names_files("tls-cert-file", "tls-private-key-file")),
    Check("1.2.25", "Client certificates are verified", names_files("client-ca-file")),
    Check("1.2.26", "etcd's certificate is verified", _etcd("etcd-cafile"), "passes with etcd"),
    Check(
        "1.2.27",
        "Secrets are encrypted in the store",
        _encrypted,
        "off: a key on the same disk protects only copies of the data; [how to enable it](#encryption-at-rest)",
    ),
    Check("1.2.28", "The encryption provider is strong", _providers, "see 1.2.27"),
    Check("1.2.29", "Only strong cipher suites are accepted", _ciphers),
    Check("1.2.30", "Token lifetimes are not extended", _token_lifetimes),
)
