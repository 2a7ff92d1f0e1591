from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kube.tracing.configuration import TracingConfiguration
from wherry import configuration, settings
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.option_checks import complete
from wherry.settings import Settings


def test_defaults_are_derived_from_the_machine_and_the_ranges() -> None:
    full = complete(Settings(node_name="n1", service_cidr="10.100.0.0/16"), "192.0.2.10")
    assert full.node_ip == "192.0.2.10"
    assert full.cluster_dns == "10.100.0.10"
    assert full.kubernetes_service == "10.100.0.1"
    assert full.server == "https://192.0.2.10:6443"


def test_tracing_is_off_unless_there_is_a_collector(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), tracing_sampling_rate=5)
    assert settings.tracing is None and "tracing" not in configuration.kubelet_configuration(settings, {})
    settings = Settings(prefix=str(tmp_path), tracing_endpoint="127.0.0.1:4317")
    assert configuration.kubelet_configuration(settings, {})["tracing"] == {
        "endpoint": "127.0.0.1:4317",
        "samplingRatePerMillion": 10_000,
    }
    assert control_config(settings).tracing == TracingConfiguration("127.0.0.1:4317", 10_000)


def test_a_file_of_the_administrators_is_checked_before_anything_starts(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), tracing_endpoint="127.0.0.1:4317")
    file = settings.layout.etc / "tracing.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n")
    assert control_config(settings).tracing_config_file == file
    file.write_text("kind: TracingConfiguration\n")
    with pytest.raises(WherryError, match=f"{file}: apiVersion is missing"):
        control_config(settings)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tracing_endpoint": "http://a:4317"}, "--tracing-endpoint http://a:4317: unsupported scheme: http"),
        ({"tracing_sampling_rate": -1}, "--tracing-sampling-rate -1: sampling rate must be positive"),
        ({"tracing_sampling_rate": 2_000_000}, "--tracing-sampling-rate 2000000: sampling rate per million must be"),
    ],
)
def test_invalid_options_of_tracing(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(WherryError, match=problem):
        complete(Settings(node_name="n1", **options), "192.0.2.10")


def test_a_cluster_without_cluster_dns_gives_pods_none() -> None:
    full = complete(Settings(node_name="n1", cluster_dns="none"), "192.0.2.10")
    assert full.dns_addresses == () and not full.serves_dns
    assert configuration.shared_kubelet(full)["clusterDNS"] == []
    assert complete(full, "198.51.100.7") == full


def test_pods_ask_a_dns_that_others_serve() -> None:
    full = complete(Settings(node_name="n1", dns="none", cluster_dns="10.96.0.53"), "192.0.2.10")
    assert full.dns_addresses == ("10.96.0.53",) and not full.serves_dns
    assert configuration.shared_kubelet(full)["clusterDNS"] == ["10.96.0.53"]


DUAL = {"pod_cidr": "10.244.0.0/16,fd00:244::/56", "service_cidr": "10.96.0.0/12,fd00:96::/112"}


def test_a_machine_of_both_families_has_an_address_of_each() -> None:
    full = complete(Settings(node_name="n1", node_ip="192.0.2.10, fd99::1", **DUAL), "")
    assert (full.node_ip, full.second_node_ip) == ("192.0.2.10", "fd99::1")
    assert full.node_ips == ["192.0.2.10", "fd99::1"]
    assert full.dns_addresses == ("10.96.0.10", "fd00:96::a") and full.kubernetes_service == "10.96.0.1"
    # Completed once more, as on every later start, it stays as it is.
    assert complete(full, "198.51.100.7") == full


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"node_ip": "192.0.2.1,192.0.2.2"}, "one address, or one of IPv4 and one of IPv6"),
        ({"node_ip": "192.0.2.1,fd00:244::5"}, "lies in --pod-cidr fd00:244::/56"),
        ({"cluster_dns": "10.96.0.10,10.96.0.11"}, "one address, or one of IPv4 and one of IPv6"),
        ({"cluster_dns": "10.96.0.10,fd00:97::a"}, "--cluster-dns fd00:97::a: it lies outside of the service range"),
        ({"cluster_dns": "10.96.0.x"}, "--cluster-dns 10.96.0.x: not an IP address"),
        ({"pod_cidr": "10.244.0.0/16"}, "ranges of the same families"),
        ({"service_cidr": "fd00:96::/112,10.96.0.0/12"}, "in the same order"),
        ({"service_cidr": "10.96.0.0/12,10.112.0.0/12"}, "one range, or one of IPv4 and one of IPv6"),
        ({"service_cidr": "10.96.0.0/12,fd00:244::/112"}, "overlap"),
        ({"service_cidr": "10.96.0.0/12,fd00:96::/126"}, "fewer than 16"),
    ],
)
def test_ranges_and_addresses_of_both_families_go_together(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(WherryError, match=message):
        complete(Settings(**{"node_name": "n1", **DUAL, **wrong}), "192.0.2.10")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"node_name": "Not_A_Name"}, "--node-name Not_A_Name: a lowercase RFC 1123 subdomain must"),
        ({"service_cidr": "10.96.0.0/33"}, "--service-cidr 10.96.0.0/33"),
        ({"service_cidr": "10.244.1.0/24"}, "overlap"),
        ({"service_cidr": "10.96.0.0/30"}, "fewer than 16"),
        ({"cluster_dns": "10.0.0.1"}, "outside of the service range"),
        ({"node_ip": "127.0.0.1"}, "name a routable address"),
        ({"node_ip": "10.96.0.4"}, "choose another"),
        ({"node_ip": "nowhere"}, "not an IP address"),
        ({"node_ip": "fd99::1"}, "the family of the first --service-cidr, 10.96.0.0/12"),
        ({"store": "postgres"}, "either sqlite or etcd"),
        ({"store": "etcd"}, "needs --etcd-servers"),
        ({"etcd_servers": "http://127.0.0.1:2379"}, "is for --store etcd"),
        (
            {"store": "etcd", "etcd_servers": "http://h:2379", "etcd_cafile": "/none"},
            "--etcd-cafile /none: there is no",
        ),
        (
            {"load_balancer_ports": "80,http"},
            "--load-balancer-ports 80,http: 'http' is neither a port nor a range such as 1024-29999",
        ),
    ],
)
def test_a_wrong_choice_is_refused_with_what_to_do(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(WherryError, match=message):
        complete(Settings(**{"node_name": "n1", **wrong}), "192.0.2.10")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"node_name": "n2"}, "this machine is node n1: to give it another name"),
        ({"pod_cidr": "10.0.0.0/8"}, "--pod-cidr is the cluster's, not a worker's"),
        ({"names": ["a"]}, "--name is the cluster's, not a worker's"),
        ({"store": "etcd"}, "--store is the cluster's, not a worker's"),
    ],
)
def test_a_worker_decides_nothing_for_the_cluster(given: dict[str, Any], message: str) -> None:
    worker = Settings(node_name="n1", role="worker", joined="https://192.0.2.1:6443")
    with pytest.raises(WherryError, match=message):
        settings.check_worker(worker, given)
    settings.check_worker(Settings(node_name="n1"), given)
    settings.check_worker(worker, {"node_name": "n1", "max_pods": 50, "node_ip": "192.0.2.7", "prefix": "/"})


def test_a_machine_without_a_default_route_needs_its_address_as_an_option() -> None:
    with pytest.raises(WherryError, match="name it with --node-ip"):
        complete(Settings(node_name="n1"), "")


def test_settings_come_back_as_they_were_saved(tmp_path: Path) -> None:
    assert settings.load(str(tmp_path)) is None
    kept = complete(Settings(prefix=str(tmp_path), node_name="n1", names=["a.example"]), "192.0.2.10")
    kept.save()
    assert settings.load(str(tmp_path)) == kept
    for text, why in (("{", "it is not JSON"), ('{"max_pods": "many"}', "max_pods: write a whole number, not a text")):
        kept.layout.settings.write_text(text)
        with pytest.raises(WherryError, match=rf"is damaged \({why}\): remove it"):
            settings.load(str(tmp_path))


def test_another_prefix_shares_no_path_with_the_first() -> None:
    first, second = Settings().layout, Settings(prefix="/tmp/second").layout
    for name in ("etc", "state", "run", "kubelet", "pod_logs", "cni_configuration", "containerd_socket", "cgroup"):
        assert getattr(first, name) != getattr(second, name)


@pytest.mark.parametrize("content", ["{}", '{"prefix": "/"}', '{"prefix": "/srv/other"}'])
def test_the_prefix_is_the_callers_whatever_the_file_names(tmp_path: Path, content: str) -> None:
    path = Settings(prefix=str(tmp_path)).layout.settings
    path.parent.mkdir(parents=True)
    path.write_text(content)
    found = settings.load(str(tmp_path))
    assert found is not None and found.prefix == str(tmp_path) and str(found.layout.settings).startswith(str(tmp_path))
    assert found.dns_addresses == ()
