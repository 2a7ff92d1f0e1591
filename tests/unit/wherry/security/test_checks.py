"""Every check on an installation as it should be, and on one that has what the check is for."""

from __future__ import annotations

import base64
import copy
import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from control.admission.plugins import PLUGINS
from kube.json_object import Object
from wherry import configuration, containerd, file_modes, supervisor
from wherry.option_checks import complete
from wherry.security import report
from wherry.security.facts import Containerd, Etcd, EtcdPort, Facts, Listening, Probed
from wherry.security.rows import CheckResult
from wherry.security.table import CHECKS, results
from wherry.settings import Settings

AUDIT = """\
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata}]
"""
ENCRYPTION = "resources: [{resources: [secrets], providers: [{aesgcm: {}}, {identity: {}}]}]"
RESTRICTED = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def pod(**spec: Any) -> Object:
    return {
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {
            "serviceAccountName": "web",
            "containers": [{"name": "c", "securityContext": dict(RESTRICTED)}],
            **spec,
        },
        "status": {"phase": "Running"},
    }


def token_volume() -> Object:
    return {"name": "token", "projected": {"sources": [{"serviceAccountToken": {}}]}}


def named(name: str, space: str = "", **more: Any) -> Object:
    return {"metadata": {"name": name} | ({"namespace": space} if space else {}), **more}


def bound(role: str, *people: Object, name: str = "b") -> Object:
    return named(name, roleRef={"kind": "ClusterRole", "name": role}, subjects=list(people))


MASTERS = {"kind": "Group", "name": "system:masters"}
JANE = {"kind": "User", "name": "jane"}
EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


@pytest.fixture
def good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Facts:
    """Return an installation where nothing is to be found."""
    monkeypatch.setattr(containerd, "has_bin_dirs", lambda: False)
    prefix = tmp_path / "machine"
    settings = complete(Settings(prefix=str(prefix), node_name="n1"), "192.0.2.1")
    file_modes.make_folders(settings)
    settings.save()
    containerd.write_configuration(settings)
    configuration.write_all(settings)
    layout = settings.layout
    plan = layout.run / "daemons.json"
    supervisor.write_plan(plan, layout.run, layout.logs, {})
    for path, text in (
        (layout.cni_configuration / "10.conflist", ""),
        (layout.logs / "audit.log", ""),
        (layout.etc / "audit-policy.yaml", AUDIT),
        (layout.etc / "encryption.yaml", ENCRYPTION),
    ):
        path.write_text(text)
        path.chmod(0o600)
    keys = layout.pki
    flags = {
        "anonymous-auth": "false",
        "audit-log-path": str(layout.logs / "audit.log"),
        "audit-log-maxage": "30",
        "audit-log-maxbackup": "10",
        "audit-log-maxsize": "100",
        "audit-policy-file": str(layout.etc / "audit-policy.yaml"),
        "authentication-config": str(layout.etc / "authentication.yaml"),
        "client-ca-file": str(keys / "ca.crt"),
        "encryption-provider-config": str(layout.etc / "encryption.yaml"),
        "kubelet-certificate-authority": str(keys / "ca.crt"),
        "kubelet-client-certificate": str(keys / "apiserver-kubelet-client.crt"),
        "kubelet-client-key": str(keys / "apiserver-kubelet-client.key"),
        "request-timeout": "1m0s",
        "service-account-extend-token-expiration": "false",
        "service-account-signing-key-file": str(keys / "sa.key"),
        "tls-cert-file": str(keys / "apiserver.crt"),
        "tls-private-key-file": str(keys / "apiserver.key"),
        "etcd-cafile": str(keys / "ca.crt"),
        "etcd-certfile": str(keys / "apiserver.crt"),
        "etcd-keyfile": str(keys / "apiserver.key"),
    }
    kubelet = {
        "port": 10250,
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(keys / "ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "streamingConnectionIdleTimeout": "4h0m0s",
        "tlsCertFile": str(layout.kubelet / "pki/kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.kubelet / "pki/kubelet.key"),
        "rotateCertificates": True,
        "podPidsLimit": 4096,
        "seccompDefault": True,
    }
    trust = {"data": {"ca.crt": (keys / "ca.crt").read_text()}}
    objects = {
        "Namespace": [
            named("shop", labels={}) | {"metadata": {"name": "shop", "labels": {_ENFORCE: "restricted"}}},
            named("kube-system"),
        ],
        "NetworkPolicy": [named("deny", "shop")],
        "ConfigMap": [named("kube-root-ca.crt", "shop", **trust), named("kube-root-ca.crt", "default", **trust)],
        "ClusterRole": [
            {"metadata": {"name": "cluster-admin", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}}
            | {"rules": [EVERYTHING]}
        ],
        "ClusterRoleBinding": [bound("cluster-admin", MASTERS, name="cluster-admin")],
        "ServiceAccount": [named("default", "shop", automountServiceAccountToken=False)],
        "Pod": [pod()],
        "CSIDriver": [named("secrets-store.csi.k8s.io")],
        "Service": [named("kubernetes", "default")],
        "BootstrapToken": [named("bootstrap-token-a", "kube-system", data={"expiration": _base64("2027-01-01")})],
    }
    sockets = (
        Listening("control", "0.0.0.0", 6443),
        Listening("agent", "0.0.0.0", 10250),
        Listening("agent", "127.0.0.1", 10248),
        Listening("netproxy", "127.0.0.1", 10249),
    )
    return Facts(
        settings,
        daemon_files=(plan,),
        owners=(os.geteuid(),),
        listening=sockets,
        flags=flags,
        plugins=frozenset(PLUGINS) - {"AlwaysAdmit"},
        authorizers=("Node", "RBAC"),
        kubelet=kubelet,
        host_name="n1",
        containerd=Containerd("1.6.20~ds1", restart_monitor=False),
        probed=Probed(401, 404, "", 401, ""),
        audit_users=frozenset({"system:serviceaccount:kube-system:deployment-controller"}),
        objects=objects,
    )


_LABEL = "`kubectl label namespace NAME pod-security.kubernetes.io/enforce=restricted`"
_ENFORCE = "pod-security.kubernetes.io/enforce"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def verdicts(facts: Facts) -> dict[str, CheckResult]:
    return {check.id: found for check, found in results(facts)}


def test_an_installation_as_it_should_be_passes(good: Facts) -> None:
    found = verdicts(good)
    assert {number: each for number, each in found.items() if each.verdict == "FAIL"} == {}
    assert [number for number, each in found.items() if each.verdict == "WARN"] == ["5.1.7"]
    # What is not there by design: files of static pods and etcd, SQLite in etcd's place, two of the kubelet, Windows.
    assert {number for number, each in found.items() if each.verdict == "N/A"} == {
        *("1.1.7", "1.1.8", "1.1.15", "1.1.16", "1.1.17", "1.1.18", "1.2.23", "1.2.26"),
        *(f"2.{number}" for number in range(1, 8)),
        *("4.2.8", "5.2.10"),
    }


Change = Callable[[Facts], Facts]


def mode(path: Callable[[Facts], Path], wide: int) -> Change:
    def change(facts: Facts) -> Facts:
        path(facts).chmod(wide)
        return facts

    return change


def foreign(path: Callable[[Facts], Path]) -> Change:
    def change(facts: Facts) -> Facts:
        return dataclasses.replace(facts, owners=(os.geteuid() + 1,)) if path(facts).exists() else facts

    return change


def flag(name: str, value: str) -> Change:
    return lambda facts: dataclasses.replace(facts, flags={**facts.flags, name: value})


def written(name: str, text: str) -> Change:
    def change(facts: Facts) -> Facts:
        Path(facts.flags[name]).write_text(text)
        return facts

    return change


def without(plugin: str) -> Change:
    return lambda facts: dataclasses.replace(facts, plugins=facts.plugins - {plugin})


def having(plugin: str) -> Change:
    return lambda facts: dataclasses.replace(facts, plugins=facts.plugins | {plugin})


def authorizers(*names: str) -> Change:
    return lambda facts: dataclasses.replace(facts, authorizers=names)


def probed(**changes: Any) -> Change:
    return lambda facts: dataclasses.replace(facts, probed=dataclasses.replace(facts.probed, **changes))


def listening(daemon: str, port: int, address: str = "0.0.0.0") -> Change:
    return lambda facts: dataclasses.replace(facts, listening=(*facts.listening, Listening(daemon, address, port)))


def kubelet(**changes: Any) -> Change:
    return lambda facts: dataclasses.replace(facts, kubelet={**facts.kubelet, **changes})


def objects(kind: str, *more: Object) -> Change:
    return lambda facts: dataclasses.replace(facts, objects={**facts.objects, kind: [*facts.of(kind), *more]})


def with_etcd(*, servers: str = "https://192.0.2.9:2379", own: bool = True, **wrong: bool) -> Change:
    """Store objects in an etcd whose ports have what is `wrong`."""
    good_port = EtcdPort(servers, encrypted=True, trusted=True)

    def change(facts: Facts) -> Facts:
        settings = dataclasses_replace_store(facts.settings)
        port = dataclasses.replace(good_port, **wrong)
        return dataclasses.replace(facts, settings=settings, etcd=Etcd((port,), (port,), own))

    return change


def dataclasses_replace_store(settings: Settings) -> Settings:
    return Settings(**{name: getattr(settings, name) for name in settings.__struct_fields__} | {"store": "etcd"})


def may(verb: str, group: str, resource: str) -> Change:
    """Give jane one right, by a role of her own."""
    role = named("hers", rules=[{"verbs": [verb], "apiGroups": [group], "resources": [resource]}])

    def change(facts: Facts) -> Facts:
        return objects("ClusterRoleBinding", bound("hers", JANE))(objects("ClusterRole", role)(facts))

    return change


def contexts(**changes: Any) -> Change:
    return objects("Pod", pod(containers=[{"name": "c", "securityContext": {**RESTRICTED, **changes}}]))


def both(*changes: Change) -> Change:
    def change(facts: Facts) -> Facts:
        for each in changes:
            facts = each(facts)
        return facts

    return change


def layout(name: str) -> Callable[[Facts], Path]:
    return lambda facts: Path(getattr(facts.settings.layout, name))


def plan(facts: Facts) -> Path:
    return facts.daemon_files[0]


def at(*parts: str) -> Callable[[Facts], Path]:
    return lambda facts: facts.settings.layout.prefix.joinpath(*parts)


GROUP = "rbac.authorization.k8s.io"
DEFECTS: dict[str, Change] = {
    "1.1.1": mode(plan, 0o644),
    "1.1.2": foreign(plan),
    "1.1.3": mode(plan, 0o640),
    "1.1.4": foreign(plan),
    "1.1.5": mode(plan, 0o644),
    "1.1.6": foreign(plan),
    "1.1.9": mode(at("etc/cni/net.d/10.conflist"), 0o644),
    "1.1.10": foreign(at("etc/cni/net.d/10.conflist")),
    "1.1.11": mode(at("var/lib/wherry/control"), 0o755),
    "1.1.12": foreign(at("var/lib/wherry/control")),
    "1.1.13": mode(layout("admin_kubeconfig"), 0o644),
    "1.1.14": foreign(layout("admin_kubeconfig")),
    "1.1.19": foreign(layout("pki")),
    "1.1.20": mode(at("var/lib/wherry/pki/ca.crt"), 0o666),
    "1.1.21": both(mode(layout("pki"), 0o755), mode(at("var/lib/wherry/pki/ca.key"), 0o640)),
    "1.2.1": probed(api_anonymous=200),
    "1.2.2": flag("token-auth-file", "/etc/wherry/tokens.csv"),
    "1.2.3": without("DenyServiceExternalIPs"),
    "1.2.4": flag("kubelet-client-key", ""),
    "1.2.5": flag("kubelet-certificate-authority", "/nowhere"),
    "1.2.6": authorizers("Node", "RBAC", "AlwaysAllow"),
    "1.2.7": authorizers("RBAC"),
    "1.2.8": authorizers("Node"),
    "1.2.9": without("EventRateLimit"),
    "1.2.10": having("AlwaysAdmit"),
    "1.2.11": without("AlwaysPullImages"),
    "1.2.12": without("ServiceAccount"),
    "1.2.13": without("NamespaceLifecycle"),
    "1.2.14": without("NodeRestriction"),
    "1.2.15": probed(api_profiling=200),
    "1.2.16": flag("audit-policy-file", ""),
    "1.2.17": flag("audit-log-maxage", "7"),
    "1.2.18": flag("audit-log-maxbackup", "1"),
    "1.2.19": flag("audit-log-maxsize", "1"),
    "1.2.20": flag("request-timeout", "1h0m0s"),
    "1.2.22": flag("service-account-signing-key-file", ""),
    "1.2.23": both(with_etcd(), flag("etcd-certfile", "")),
    "1.2.24": flag("tls-cert-file", ""),
    "1.2.25": flag("client-ca-file", ""),
    "1.2.26": both(with_etcd(), flag("etcd-cafile", "")),
    "1.2.27": flag("encryption-provider-config", ""),
    "1.2.28": written("encryption-provider-config", "resources: [{resources: [secrets], providers: [identity: {}]}]"),
    "1.2.30": flag("service-account-extend-token-expiration", "true"),
    "1.2.29": probed(api_weak_suite="TLSv1.2 AES128-SHA"),
    "1.3.1": objects("Pod", *[{"metadata": {}, "spec": {"containers": []}, "status": {"phase": "Failed"}}] * 14000),
    "1.3.2": listening("control", 10257),
    "1.3.3": lambda facts: dataclasses.replace(facts, audit_users=frozenset({"system:kube-controller-manager"})),
    "1.3.4": flag("service-account-signing-key-file", "/nowhere"),
    "1.3.5": objects("ConfigMap", named("kube-root-ca.crt", "other", data={"ca.crt": "another"})),
    "1.3.6": objects(
        "CertificateSigningRequest", named("csr", spec={"signerName": "kubernetes.io/kubelet-serving"}, status={})
    ),
    "1.3.7": listening("control", 10257),
    "1.4.1": listening("control", 10259),
    "1.4.2": listening("control", 10259, "192.0.2.1"),
    "2.1": with_etcd(trusted=False),
    "2.2": with_etcd(open_to_all=True),
    "2.3": with_etcd(self_signed=True),
    "2.4": with_etcd(encrypted=False),
    "2.5": with_etcd(open_to_all=True),
    "2.6": with_etcd(self_signed=True),
    "2.7": with_etcd(own=False),
    "3.1.1": flag("authentication-config", ""),
    "3.1.2": objects("TokenSecret", named("jane", "shop")),
    "3.1.3": objects("BootstrapToken", named("bootstrap-token-b", "kube-system", data={})),
    "3.2.1": flag("audit-policy-file", ""),
    "3.2.2": written("audit-policy-file", AUDIT.replace("Metadata", "RequestResponse")),
    "4.1.1": mode(plan, 0o644),
    "4.1.2": foreign(plan),
    "4.1.3": mode(layout("netproxy_kubeconfig"), 0o640),
    "4.1.4": foreign(layout("netproxy_kubeconfig")),
    "4.1.5": mode(layout("agent_kubeconfig"), 0o604),
    "4.1.6": foreign(layout("agent_kubeconfig")),
    "4.1.7": mode(at("var/lib/wherry/pki/ca.crt"), 0o664),
    "4.1.8": foreign(at("var/lib/wherry/pki/ca.crt")),
    "4.1.9": mode(layout("kubelet_configuration"), 0o644),
    "4.1.10": foreign(layout("kubelet_configuration")),
    "4.2.1": probed(kubelet_anonymous=200),
    "4.2.2": kubelet(authorization={"mode": "AlwaysAllow"}),
    "4.2.3": kubelet(authentication={"x509": {}}),
    "4.2.4": listening("agent", 10255),
    "4.2.5": kubelet(streamingConnectionIdleTimeout="0s"),
    "4.2.6": kubelet(makeIPTablesUtilChains=False),
    "4.2.7": lambda facts: dataclasses.replace(facts, host_name="other"),
    "4.2.9": kubelet(tlsCertFile=""),
    "4.2.10": kubelet(rotateCertificates=False),
    "4.2.11": kubelet(tlsCertFile=""),
    "4.2.12": probed(kubelet_weak_suite="TLSv1.2 AES128-SHA"),
    "4.2.13": kubelet(podPidsLimit=-1),
    "4.2.14": kubelet(seccompDefault=False),
    "4.3.1": listening("netproxy", 10249),
    "5.1.1": objects("ClusterRoleBinding", bound("cluster-admin", JANE)),
    "5.1.2": may("list", "", "secrets"),
    "5.1.3": objects("Role", named("wide", "shop", rules=[EVERYTHING])),
    "5.1.4": may("create", "", "pods"),
    "5.1.5": objects("Pod", {**pod(serviceAccountName="default", volumes=[token_volume()]), **named("q", "other")}),
    "5.1.6": objects("Pod", pod(volumes=[token_volume()])),
    "5.1.8": may("impersonate", "", "users"),
    "5.1.9": may("create", "", "persistentvolumes"),
    "5.1.10": may("get", "", "nodes/proxy"),
    "5.1.11": may("update", "certificates.k8s.io", "certificatesigningrequests/approval"),
    "5.1.12": may("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    "5.1.13": may("create", "", "serviceaccounts/token"),
    "5.2.1": objects("Namespace", named("free")),
    "5.2.2": contexts(privileged=True),
    "5.2.3": objects("Pod", pod(hostPID=True)),
    "5.2.4": objects("Pod", pod(hostIPC=True)),
    "5.2.5": objects("Pod", pod(hostNetwork=True)),
    "5.2.6": contexts(allowPrivilegeEscalation=None),
    "5.2.7": contexts(runAsNonRoot=False),
    "5.2.8": contexts(capabilities={"drop": ["MKNOD"]}),
    "5.2.9": contexts(capabilities={"drop": ["NET_RAW"]}),
    "5.2.10": contexts(windowsOptions={"hostProcess": True}),
    "5.2.11": objects("Pod", pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}])),
    "5.2.12": objects("Pod", pod(containers=[{"name": "c", "ports": [{"hostPort": 80}]}])),
    "5.3.1": lambda facts: dataclasses.replace(facts, listening=()),
    "5.3.2": objects("Namespace", named("free")),
    "5.4.1": objects("Pod", pod(containers=[{"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}])),
    "5.4.2": lambda facts: dataclasses.replace(facts, objects={**facts.objects, "CSIDriver": []}),
    "5.5.1": without("ImagePolicyWebhook"),
    "5.6.1": lambda facts: dataclasses.replace(facts, objects={**facts.objects, "Namespace": [named("default")]}),
    "5.6.2": contexts(seccompProfile={"type": "Unconfined"}),
    "5.6.3": objects("Pod", pod(containers=[{"name": "c"}])),
    "5.6.4": objects("Pod", {**pod(), **named("p", "default")}),
    "W.1": lambda facts: dataclasses.replace(facts, containerd=Containerd("1.6.20~ds1", restart_monitor=True)),
}
CANNOT_FAIL = {
    *("1.1.7", "1.1.8", "1.1.15", "1.1.16", "1.1.17", "1.1.18", "4.2.8"),  # not here
    "1.2.21",  # built in
    "5.1.7",  # always a warning: the administrator's kubeconfig is in the group
}


def test_every_check_has_a_defect_that_it_finds() -> None:
    assert set(DEFECTS) | CANNOT_FAIL == {check.id for check in CHECKS}


@pytest.mark.parametrize("number", DEFECTS)
def test_a_defect_is_found_with_its_reason_and_fix(good: Facts, number: str) -> None:
    kept = copy.deepcopy(good.objects)
    facts = DEFECTS[number](good)
    found = verdicts(facts)[number]
    assert found.verdict in ("FAIL", "WARN"), found
    assert found.reason and found.fix and "\n" not in found.reason + found.fix
    assert good.objects == kept


def test_secrets_of_everybody_are_found_and_those_of_the_system_are_not(good: Facts) -> None:
    role = named("readers", rules=[{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}])
    system = {"kind": "ServiceAccount", "namespace": "kube-system", "name": "x"}
    facts = objects("ClusterRole", role)(good)
    assert verdicts(objects("ClusterRoleBinding", bound("readers", system))(facts))["5.1.2"].verdict == "PASS"
    everybody = {"kind": "Group", "name": "system:authenticated"}
    found = verdicts(objects("ClusterRoleBinding", bound("readers", everybody))(facts))["5.1.2"]
    assert found.verdict == "WARN" and "Group system:authenticated may read secrets" in found.reason


def test_another_network_plugin_is_for_a_person_to_judge(good: Facts) -> None:
    settings = {name: getattr(good.settings, name) for name in good.settings.__struct_fields__}
    facts = dataclasses.replace(good, settings=Settings(**settings | {"pod_network": "none"}))
    assert verdicts(facts)["5.3.1"].verdict == "WARN"


def test_a_worker_looks_at_itself_alone(good: Facts) -> None:
    worker = Settings(
        **{name: getattr(good.settings, name) for name in good.settings.__struct_fields__} | {"role": "worker"}
    )
    found = verdicts(Facts(worker, daemon_files=good.daemon_files, owners=good.owners, kubelet=good.kubelet))
    looked = {number for number, each in found.items() if each.verdict != "N/A"}
    assert all(number.startswith("4.") or number in ("1.1.9", "1.1.10") for number in looked) and len(looked) > 20


def test_a_check_that_fails_is_reported_and_the_others_run(good: Facts) -> None:
    found = verdicts(written("encryption-provider-config", "[")(good))
    assert found["1.2.28"].verdict == "FAIL" and "cannot be checked" in found["1.2.28"].reason
    assert found["1.2.29"].verdict == "PASS"


def test_lines_fit_80_columns_and_commands_stay_whole(good: Facts) -> None:
    found = [(check, verdicts(DEFECTS[check.id](good))[check.id]) for check in CHECKS if check.id in DEFECTS]
    shown = list(report.lines(found))
    prefix = str(good.settings.layout.prefix)
    assert [line for _, line in shown if len(line) > 80 and prefix not in line] == []
    for _, line in shown:
        assert line.count("`") % 2 == 0, line
    assert shown[-1][1] == report.summary(found)
    assert ("", _LABEL) in [(verdict, line.strip()) for verdict, line in shown]


def test_programs_get_every_check_with_its_result(good: Facts) -> None:
    found = report.as_data(list(results(flag("audit-log-maxage", "1")(good))))
    assert found["summary"]["FAIL"] == 1 and len(found["checks"]) == len(CHECKS)
    (failed,) = [each for each in found["checks"] if each["result"] == "FAIL"]
    assert failed == {
        "id": "1.2.17",
        "title": "Audit logs are kept for 30 days",
        "result": "FAIL",
        "reason": "it is 1",
        "fix": "`audit-log-maxage: 30` in /etc/wherry/apiserver.yaml",
    }
