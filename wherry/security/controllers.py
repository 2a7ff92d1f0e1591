"""Sections 1.3 and 1.4: controllers and scheduler, which run in the API server's process."""

from __future__ import annotations

from control.controllers.pod_gc import TERMINATED_THRESHOLD
from wherry.security.api_server import names_files
from wherry.security.facts import Facts
from wherry.security.rows import Check, CheckResult, failed, judge, passed

_LOOPBACK = "passes; its port is on 127.0.0.1"
_NO_PROFILER = "passes; there is no profiler"


def _on_loopback(facts: Facts) -> CheckResult:
    more = [each for each in facts.sockets("control") if each.port != facts.settings.api_port and not each.on_loopback]
    if more:
        return failed(f"it listens on {more[0].address}:{more[0].port}", "bind it to 127.0.0.1")
    return passed(f"all ports but :{facts.settings.api_port} are on loopback")


def _finished_pods(facts: Facts) -> CheckResult:
    finished = sum(pod.get("status", {}).get("phase") in ("Succeeded", "Failed") for pod in facts.of("Pod"))
    # A look every 20 s removes what is beyond; a tenth more is a collector that does not work.
    if finished > TERMINATED_THRESHOLD * 1.1:
        return failed(f"there are {finished} finished pods", "`wherry status`; see the control plane's log")
    return passed(f"{TERMINATED_THRESHOLD} finished pods are kept; there are {finished}")


def _identities(facts: Facts) -> CheckResult:
    if not facts.audit_users:
        return judge("the audit log, which shows it, is empty or disabled", "enable it: docs/security.md")
    own = [user for user in facts.audit_users if user.startswith("system:serviceaccount:kube-system:")]
    if any(user.endswith("-controller") for user in own):
        return passed("controllers act as service accounts of their own")
    return failed(
        "no controller acts as its own service account in the audit log", "`wherry up` with a version that supports it"
    )


def _root_ca(facts: Facts) -> CheckResult:
    wanted = (facts.settings.layout.pki / "ca.crt").read_text().strip()
    published = {
        each["metadata"]["namespace"]: (each.get("data") or {}).get("ca.crt", "").strip()
        for each in facts.of("ConfigMap")
        if each["metadata"]["name"] == "kube-root-ca.crt"
    }
    wrong = [name for name, text in published.items() if text != wanted]
    if wrong or not published:
        return failed(f"kube-root-ca.crt is not the cluster's in {wrong or 'any namespace'}", "`wherry up`")
    return passed("kube-root-ca.crt is in every namespace" if len(published) > 1 else "")


def _serving_rotation(facts: Facts) -> CheckResult:
    signed = [
        request
        for request in facts.of("CertificateSigningRequest")
        if request["spec"].get("signerName") == "kubernetes.io/kubelet-serving"
        and not (request.get("status") or {}).get("certificate")
    ]
    if signed:
        return judge(f"{len(signed)} kubelet requests wait for approval", "`kubectl get csr`")
    return passed("kubelet serving certificates are approved and signed")


CHECKS = (
    Check("1.3.1", "Finished pods are collected", _finished_pods, "passes; threshold 12500, as upstream"),
    Check("1.3.2", "Profiling of the controllers is off", _on_loopback, _NO_PROFILER),
    Check("1.3.3", "Each controller uses its own service account", _identities),
    Check("1.3.4", "Service account tokens are signed with a key", names_files("service-account-signing-key-file")),
    Check("1.3.5", "Pods receive the cluster's CA", _root_ca),
    Check("1.3.6", "Kubelets' serving certificates are renewed", _serving_rotation),
    Check("1.3.7", "Controllers listen on loopback only", _on_loopback, _LOOPBACK),
    Check("1.4.1", "Profiling of the scheduler is off", _on_loopback, _NO_PROFILER),
    Check("1.4.2", "The scheduler listens on loopback only", _on_loopback, _LOOPBACK),
)
