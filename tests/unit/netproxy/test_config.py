"""Reading upstream's configuration file."""

from pathlib import Path

import pytest

from netproxy import backend, config
from netproxy.__main__ import configuration, parser
from netproxy.assembly import static_settings
from netproxy.backend import check_mode
from netproxy.errors import ConfigError, UnsupportedModeError

HEAD = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}


def test_an_empty_configuration_has_upstreams_defaults() -> None:
    found = config.parse(HEAD)
    assert (found.mode, found.masquerade_mark, found.healthz_bind_address) == ("iptables", "0x4000", "0.0.0.0:10256")
    assert found.metrics_bind_address == "127.0.0.1:10249"
    assert found.conntrack.tcp_established_timeout == 86400
    assert found.localhost_node_ports


def test_a_file_as_kubeadm_writes_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.conf"
    path.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nbindAddress: 0.0.0.0\nbindAddressHardFail: false\n"
        "clientConnection:\n  acceptContentTypes: ''\n  burst: 0\n  contentType: ''\n"
        "  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf\n  qps: 0\n"
        "clusterCIDR: 10.244.0.0/16\nconfigSyncPeriod: 0s\n"
        "conntrack:\n  maxPerCore: null\n  min: null\n  tcpCloseWaitTimeout: null\n  tcpEstablishedTimeout: 1h30m\n"
        "detectLocal:\n  bridgeInterface: ''\n  interfaceNamePrefix: ''\ndetectLocalMode: ''\nenableProfiling: false\n"
        "healthzBindAddress: ''\nhostnameOverride: ''\n"
        "iptables:\n  localhostNodePorts: null\n  masqueradeAll: true\n  masqueradeBit: 15\n  minSyncPeriod: 0s\n"
        "  syncPeriod: 0s\n"
        "ipvs:\n  excludeCIDRs: null\n  minSyncPeriod: 0s\n  scheduler: ''\n  strictARP: false\n  syncPeriod: 0s\n"
        "  tcpFinTimeout: 0s\n  tcpTimeout: 0s\n  udpTimeout: 0s\n"
        "kind: KubeProxyConfiguration\nlogging:\n  flushFrequency: 0\n  options:\n    json:\n      infoBufferSize: '0'\n"
        "  verbosity: 0\nmetricsBindAddress: ''\nmode: ''\nnodePortAddresses: null\noomScoreAdj: null\nportRange: ''\n"
        "showHiddenMetricsForVersion: ''\nwinkernel:\n  enableDSR: false\n  forwardHealthCheckVip: false\n"
        "  networkName: ''\n  rootHnsEndpointName: ''\n  sourceVip: ''\n"
    )
    found = config.load(path)
    assert found.kubeconfig == "/var/lib/kube-proxy/kubeconfig.conf"
    assert found.cluster_cidrs == ("10.244.0.0/16",)
    assert (found.masquerade_all, found.masquerade_mark) == (True, "0x8000")
    assert found.conntrack.tcp_established_timeout == 5400
    assert (found.mode, found.sync_period) == ("iptables", 30)
    assert (found.healthz_bind_address, found.metrics_bind_address) == ("0.0.0.0:10256", "127.0.0.1:10249")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodePortAddress": []}, 'unknown field "nodePortAddress"'),
        ({"iptables": {"masqueradebit": 3}}, 'unknown field "iptables.masqueradebit"'),
        ({"iptables": []}, "iptables: expected a mapping, got list"),
        ({"mode": "userspace"}, "mode: unsupported value 'userspace'"),
        ({"mode": 3}, "mode: expected a string, got 3"),
        ({"iptables": {"masqueradeBit": True}}, "iptables.masqueradeBit: expected a whole number, got True"),
        ({"iptables": {"masqueradeBit": 32}}, "32 is not within 0 to 31"),
        ({"iptables": {"syncPeriod": "5"}}, "iptables.syncPeriod: invalid duration '5'"),
        ({"clusterCIDR": "10.244.0.0/33"}, "clusterCIDR: "),
        ({"bindAddress": "localhost"}, "bindAddress: "),
        ({"healthzBindAddress": "0.0.0.0"}, "healthzBindAddress: '0.0.0.0' is not an address and a port"),
        ({"detectLocalMode": "Bridge"}, "detectLocalMode: unsupported value 'Bridge'"),
        ({"detectLocalMode": "BridgeInterface"}, "detectLocal.bridgeInterface: '' is not the name of a network device"),
        ({"ipvs": {"scheduler": "rr; reboot"}}, "ipvs.scheduler: 'rr; reboot' is not the name of a scheduler"),
        ({"kind": "KubeletConfiguration"}, "expected apiVersion"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_field(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        config.parse({**HEAD, **change})
    assert message in str(error.value)


def test_text_that_is_not_yaml_is_refused_with_the_files_name(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("a: [")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        config.load(path)
    with pytest.raises(ConfigError, match="No such file"):
        config.load(tmp_path / "missing.yaml")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_text(
        f"apiVersion: {HEAD['apiVersion']}\nkind: {HEAD['kind']}\nclusterCIDR: 10.1.0.0/16\nhostnameOverride: a\n"
    )
    arguments = parser().parse_args(
        ["--config", str(path), "--hostname-override", "b", "--cluster-dns", "10.96.0.11", "--no-pod-network"]
    )
    found = configuration(arguments)
    assert (found.hostname_override, found.cluster_cidrs) == ("b", ("10.1.0.0/16",))
    assert found.dns.addresses == ("10.96.0.11",)
    assert not found.pod_network.enabled


def test_kube_proxys_command_line_is_understood() -> None:
    line = (
        "--kubeconfig=/etc/kp.conf --proxy-mode=nftables --masquerade-all --cluster-cidr=10.1.0.0/16,fd00::/48 "
        "--nodeport-addresses=10.0.0.0/8,primary --conntrack-tcp-timeout-established=2h --bind-address-hard-fail=false "
        "--iptables-masquerade-bit=12 --detect-local-mode=InterfaceNamePrefix --pod-interface-name-prefix=veth "
        "--ipvs-scheduler=wrr --healthz-bind-address= --v=2 --feature-gates=A=true --profiling --oom-score-adj=-999"
    )
    found = configuration(parser().parse_args(line.split(" ")))
    assert (found.kubeconfig, found.mode, found.masquerade_all) == ("/etc/kp.conf", "nftables", True)
    assert found.cluster_cidrs == ("10.1.0.0/16", "fd00::/48")
    assert found.node_port_addresses == ("10.0.0.0/8", "primary")
    assert (found.masquerade_mark, found.local_interface) == ("0x1000", "veth+")
    assert found.conntrack.tcp_established_timeout == 7200
    assert (found.ipvs.scheduler, found.healthz_bind_address) == ("wrr", "")
    assert found.metrics_bind_address == "127.0.0.1:10249"


@pytest.mark.parametrize(
    ("mode", "given", "expected"),
    [
        ("iptables", (), ()),
        ("nftables", (), ("192.168.0.1",)),
        ("iptables", ("primary", "10.0.0.0/8"), ("10.0.0.0/8", "192.168.0.1")),
        ("nftables", ("0.0.0.0/0",), ("0.0.0.0/0",)),
    ],
)
def test_node_ports_are_served_where_upstream_serves_them(
    mode: str, given: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    found = static_settings(config.ProxyConfig(node_port_addresses=given), 4, ("fd00::1", "192.168.0.1"), mode)
    assert found.node_port_cidrs == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1h30m", 5400), ("250ms", 0.25), ("0s", 0), ("1.5h", 5400)]
)
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert config.parse_duration(text, "x") == seconds


def test_a_mode_that_the_kernel_or_the_machine_lacks_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert check_mode("auto") == check_mode("iptables") == "iptables"
    assert check_mode("nftables") == "nftables"
    monkeypatch.setattr(backend, "IPVS_TABLE", str(tmp_path / "ip_vs"))
    with pytest.raises(UnsupportedModeError, match="mode ipvs: this kernel has no IP virtual server"):
        check_mode("ipvs")
    (tmp_path / "ip_vs").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedModeError, match="package ipvsadm"):
        check_mode("ipvs")
    for command in ("ipvsadm", "ipset"):
        (tmp_path / command).touch(mode=0o755)
    assert check_mode("ipvs") == "ipvs"


def test_the_nftables_mode_without_nft_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnsupportedModeError, match="package nftables"):
        check_mode("nftables")
