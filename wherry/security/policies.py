"""Sections 5.3 to 5.6: networks, secrets, images, namespaces."""

from __future__ import annotations

from kube.json_object import Object
from wherry.security.facts import Facts
from wherry.security.pod_standards import containers, own_namespaces, own_pods
from wherry.security.rbac import namespace
from wherry.security.rows import Check, CheckResult, failed, judge, listed, passed

_YOURS = "depends on you"


def _enforced(facts: Facts) -> CheckResult:
    if not facts.settings.own_pod_network:
        return judge("pods have the network of another CNI plugin", "a plugin that enforces them (flannel does not)")
    daemon = "netproxy" if facts.settings.own_proxy else "dns"
    if not facts.sockets(daemon):
        return failed(f"wherry-{daemon}, which enforces them, is not running", "`wherry up`")
    return passed(f"wherry-{daemon} enforces them on every node")


def _isolated(facts: Facts) -> CheckResult:
    have = {namespace(each) for each in facts.of("NetworkPolicy")}
    free = [name for each in own_namespaces(facts) if (name := each["metadata"]["name"]) not in have]
    if free:
        return judge(f"no policy: {listed(free)}", "a NetworkPolicy that denies what is not allowed")
    return passed()


def _named(pod: Object) -> str:
    return f"{namespace(pod)}/{pod['metadata']['name']}"


def _secrets_as_files(facts: Facts) -> CheckResult:
    def shown(pod: Object) -> bool:
        for container in containers(pod):
            if any(source.get("secretRef") for source in container.get("envFrom") or []):
                return True
            if any((each.get("valueFrom") or {}).get("secretKeyRef") for each in container.get("env") or []):
                return True
        return False

    found = [_named(pod) for pod in own_pods(facts) if shown(pod)]
    return (
        judge(f"in environment variables: {listed(found)}", "mount them as files")
        if found
        else passed("no pod has one")
    )


def _external(facts: Facts) -> CheckResult:
    drivers = [each["metadata"]["name"] for each in facts.of("CSIDriver")]
    stores = [name for name in drivers if "secrets-store" in name]
    if stores:
        return passed(listed(stores))
    return judge("secrets are stored in the cluster", "a KMS plugin (docs/security.md) or a secrets-store CSI driver")


def _provenance(facts: Facts) -> CheckResult:
    if "ImagePolicyWebhook" in facts.plugins:
        return passed("ImagePolicyWebhook is on")
    return judge("images are not verified before they run", "ImagePolicyWebhook: docs/security.md")


def _boundaries(facts: Facts) -> CheckResult:
    names = [each["metadata"]["name"] for each in own_namespaces(facts) if each["metadata"]["name"] != "default"]
    if names:
        return passed(f"{len(names)} namespaces besides default")
    return judge("there is only the default namespace", "`kubectl create namespace NAME`")


def _seccomp(facts: Facts) -> CheckResult:
    def unconfined(pod: Object) -> bool:
        contexts = [pod["spec"].get("securityContext") or {}]
        contexts += [container.get("securityContext") or {} for container in containers(pod)]
        return any((each.get("seccompProfile") or {}).get("type") == "Unconfined" for each in contexts)

    found = [_named(pod) for pod in own_pods(facts) if unconfined(pod)]
    if found:
        return judge(f"Unconfined: {listed(found)}", "seccompProfile.type: RuntimeDefault in them")
    return passed("RuntimeDefault where a pod names none")


def _contexts(facts: Facts) -> CheckResult:
    found = [
        _named(pod)
        for pod in own_pods(facts)
        if not pod["spec"].get("securityContext") and not all(each.get("securityContext") for each in containers(pod))
    ]
    return judge(f"without: {listed(found)}", "a securityContext in them") if found else passed("every pod has one")


def _default_namespace(facts: Facts) -> CheckResult:
    found = [f"pod {pod['metadata']['name']}" for pod in facts.of("Pod") if namespace(pod) == "default"]
    found += [
        f"service {each['metadata']['name']}"
        for each in facts.of("Service")
        if namespace(each) == "default" and each["metadata"]["name"] != "kubernetes"
    ]
    return judge(listed(found), "a namespace of their own") if found else passed("nothing is in it")


CHECKS = (
    Check("5.3.1", "Network policies are enforced", _enforced),
    Check("5.3.2", "Every namespace has a network policy", _isolated, _YOURS),
    Check("5.4.1", "Secrets are mounted as files, not variables", _secrets_as_files, _YOURS),
    Check("5.4.2", "Secrets are stored outside the cluster", _external, _YOURS),
    Check(
        "5.5.1",
        "Image provenance is verified",
        _provenance,
        "depends on you: the verifying webhook is not part of Kubernetes",
    ),
    Check("5.6.1", "Namespaces separate resources", _boundaries, _YOURS),
    Check("5.6.2", "Pods have a seccomp profile", _seccomp, "passes; the kubelet's default is RuntimeDefault"),
    Check("5.6.3", "Pods have security contexts", _contexts, _YOURS),
    Check("5.6.4", "The default namespace is not used", _default_namespace, _YOURS),
)
