"""The kubelet's configuration: upstream's file, flags, and invalid values."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent import configure
from agent.flags import Flags
from agent.kubelet_configuration import ConfigError, parse
from kube.tracing.configuration import TracingConfiguration

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


# -- configuration ----------------------------------------------------------------------------------------------------
def test_upstreams_file_and_flags_become_one_configuration(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(
        HEAD + "clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\nmaxPods: 50\nnodeStatusUpdateFrequency: 1m30s\n"
        "containerLogMaxSize: 5Mi\nevictionHard: {memory.available: 200Mi}\nkubeAPIQPS: 50\n"
    )
    built = configure.from_flags(
        Flags(config=str(file), hostname_override="Node-A", node_labels="a=b,c=", register_with_taints="k=v:NoSchedule")
    )
    assert (built.node_name, built.max_pods, built.cluster_dns) == ("node-a", 50, ("10.96.0.10",))
    assert (built.status_update_period, built.logs.max_bytes) == (90.0, 5 << 20)
    assert built.eviction.hard == {"memory.available": "200Mi"} and built.not_acted_on == ("kubeAPIQPS",)
    assert built.node_labels == {"a": "b", "c": ""}
    assert [(t.key, t.value, t.effect) for t in built.taints] == [("k", "v", "NoSchedule")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEAD + "maxPodz: 5\n", "maxPodz"),
        (HEAD + "authentication: {webhook: {enabeld: true}}\n", "enabeld"),
        (HEAD + "maxPods: many\n", "maxPods"),
        ("kind: Pod\napiVersion: v1\n", "found v1 Pod"),
        ("[1, 2]", "expected a mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_a_bad_file_is_refused_with_the_fields_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        parse(text)


@pytest.mark.parametrize(
    "change",
    [
        "cgroupDriver: none",
        "syncFrequency: 5 minutes",
        "authorization: {mode: RBAC}",
        "tlsMinVersion: VersionTLS9",
        "tlsCipherSuites: [TLS_NULL]",
        "tracing: {samplingRatePerMillion: -1}",
        "tracing: {endpoint: 'http://a:4317'}",
    ],
)
def test_bad_values_are_refused(change: str) -> None:
    file, _ = parse(HEAD + change + "\n")
    with pytest.raises(ConfigError):
        configure.build(file, Flags())


def test_tracing_is_upstreams_field_with_its_messages() -> None:
    file, idle = parse(HEAD + "tracing: {endpoint: 'c:4317', samplingRatePerMillion: 100}\n")
    assert file.tracing == TracingConfiguration("c:4317", 100) and not idle
    assert parse(HEAD)[0].tracing is None
    with pytest.raises(ConfigError, match="tracing: there is no field rate"):
        parse(HEAD + "tracing: {rate: 1}\n")
    file, _ = parse(HEAD + "tracing: {samplingRatePerMillion: 2000000}\n")
    with pytest.raises(
        ConfigError, match=r"^invalid configuration: tracing\.samplingRatePerMillion: Invalid value: 2000000: "
    ):
        configure.build(file, Flags())
