"""Reading upstream's configuration file."""

import asyncio
import json
from pathlib import Path

import pytest

from kube.process import Result
from netproxy import config, configuration_file, modes
from netproxy.__main__ import cli, configuration, parser
from netproxy.backend_factory import fixed_chain_settings
from netproxy.errors import ConfigError, UnsupportedModeError
from netproxy.service_subsystem import check_hosts

HEAD = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}


def test_an_empty_configuration_has_upstreams_defaults() -> None:
    found = configuration_file.parse(HEAD)
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
    found = configuration_file.load(path)
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
        ({"ipvs": {"scheduler": "rr; reboot"}}, "ipvs.scheduler: unsupported value 'rr; reboot': use one of rr, wrr"),
        ({"iptables": {"minSyncPeriod": "1m"}}, "minSyncPeriod: 60s is not within 0 and syncPeriod (30s)"),
        ({"oomScoreAdj": 1001}, "oomScoreAdj: 1001 is not within -1000 to 1000"),
        ({"logging": {"format": "xml"}}, "logging.format: unsupported value 'xml': use one of text, json"),
        ({"conntrack": {"min": -1}}, "conntrack.maxPerCore, conntrack.min: must not be below 0"),
        ({"conntrack": {"minimum": 1}}, 'unknown field "conntrack.minimum"'),
        ({"kind": "KubeletConfiguration"}, "expected apiVersion"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_field(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        configuration_file.parse({**HEAD, **change})
    assert message in str(error.value)


def test_text_that_is_not_yaml_is_refused_with_the_files_name(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("a: [")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        configuration_file.load(path)
    with pytest.raises(ConfigError, match="No such file"):
        configuration_file.load(tmp_path / "missing.yaml")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "proxy.yaml"
    path.write_text(
        f"apiVersion: {HEAD['apiVersion']}\nkind: {HEAD['kind']}\nclusterCIDR: 10.1.0.0/16\nhostnameOverride: a\n"
    )
    arguments = parser().parse_args(
        [
            "--config",
            str(path),
            "--hostname-override",
            "b",
            "--cluster-dns",
            "10.96.0.11",
            "--dns-ttl",
            "30",
            "--no-pod-network",
            "--no-service-load-balancer",
        ]
    )
    found = configuration(arguments)
    assert not found.service_load_balancer and configuration(parser().parse_args([])).service_load_balancer
    assert (found.hostname_override, found.cluster_cidrs) == ("b", ("10.1.0.0/16",))
    assert (found.dns.addresses, found.dns.ttl) == (("10.96.0.11",), 30)
    assert not found.pod_network.enabled


def test_kube_proxys_command_line_is_understood() -> None:
    line = (
        "--kubeconfig=/etc/kp.conf --proxy-mode=nftables --masquerade-all --cluster-cidr=10.1.0.0/16,fd00::/48 "
        "--nodeport-addresses=10.0.0.0/8,primary --conntrack-tcp-timeout-established=2h --bind-address-hard-fail=false "
        "--iptables-masquerade-bit=12 --detect-local-mode=InterfaceNamePrefix --pod-interface-name-prefix=veth "
        "--ipvs-scheduler=wrr --healthz-bind-address= --v=2 --feature-gates=A=true --profiling --oom-score-adj=-999 "
        "--iptables-min-sync-period=2s --logging-format=json --metrics-port=9000 --config-sync-period=1h --kube-api-qps=5.5"
    )
    found = configuration(parser().parse_args(line.split(" ")))
    assert (found.kubeconfig, found.mode, found.masquerade_all) == ("/etc/kp.conf", "nftables", True)
    assert found.cluster_cidrs == ("10.1.0.0/16", "fd00::/48")
    assert found.node_port_addresses == ("10.0.0.0/8", "primary")
    assert (found.masquerade_mark, found.local_interface) == ("0x1000", "veth+")
    assert found.conntrack.tcp_established_timeout == 7200
    assert (found.ipvs.scheduler, found.healthz_bind_address) == ("wrr", "")
    assert found.metrics_bind_address == "127.0.0.1:9000"
    assert (found.verbosity, found.oom_score_adjust, found.log_format) == (2, -999, "json")
    assert found.min_sync_period == 0  # iptables-min-sync-period is of another mode


def test_minus_v_is_klogs_level() -> None:
    assert [configuration(parser().parse_args(line)).verbosity for line in (["-v=4"], ["-v", "2"], [])] == [4, 2, 0]


@pytest.mark.parametrize("port", ["healthz", "metrics"])
def test_port_0_serves_none(port: str) -> None:
    found = configuration(parser().parse_args([f"--{port}-port=0"]))
    assert getattr(found, f"{port}_bind_address") == ""


def test_every_field_of_the_file_can_be_written_out_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "written.yaml"
    line = ["--proxy-mode=ipvs", "--ipvs-strict-arp", "--ipvs-tcp-timeout=90s", "--cluster-cidr=10.1.0.0/16,fd00::/48"]
    assert cli([*line, "--oom-score-adj=3", "--write-config-to", str(path)]) == 0
    found = configuration_file.load(path)
    assert found == configuration(parser().parse_args([*line, "--oom-score-adj=3"]))
    assert (found.mode, found.ipvs.strict_arp, found.ipvs.tcp_timeout) == ("ipvs", True, 90)


def test_the_file_is_written_through_no_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "written.yaml").symlink_to(tmp_path / "target")
    assert cli(["--write-config-to", str(tmp_path / "written.yaml")]) == 1
    assert (tmp_path / "target").read_text() == "precious"
    assert "written.yaml" in capsys.readouterr().err
    assert cli(["--write-config-to", "/dev/null"]) == 0


def test_a_field_that_changes_nothing_here_is_named_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    configuration_file.parse(
        {**HEAD, "portRange": "1-2", "clientConnection": {"qps": 5, "burst": 0}, "configSyncPeriod": ""}
    )
    reported = [record.getMessage() for record in caplog.records]
    assert [line.split(" ")[0] for line in reported] == ["portRange", "clientConnection.qps"]


def test_each_mode_has_its_own_section() -> None:
    sections = {
        "iptables": {"masqueradeBit": 1, "minSyncPeriod": "1s", "syncPeriod": "10s"},
        "nftables": {"masqueradeBit": 2, "minSyncPeriod": "2s", "syncPeriod": "20s"},
        "ipvs": {"minSyncPeriod": "3s", "syncPeriod": "0s", "scheduler": "mh"},
    }
    found = [configuration_file.parse({**HEAD, **sections, "mode": mode}) for mode in ("iptables", "nftables", "ipvs")]
    assert [(each.masquerade_bit, each.min_sync_period, each.sync_period) for each in found] == [
        (1, 1, 10),
        (2, 2, 20),
        (1, 3, 30),
    ]


async def test_auto_is_nftables_unless_something_speaks_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ""

    async def answer(argv: list[str], **_: object) -> Result:
        return Result(0, listed if argv[0] == "nft" else "-P FORWARD ACCEPT\n", "")

    monkeypatch.setattr(modes, "run", answer)
    monkeypatch.setattr(modes.shutil, "which", lambda name: f"/usr/sbin/{name}")
    monkeypatch.setattr(modes, "_legacy_tables", lambda family: ["filter"])
    hook = {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "accept"}
    for chain, kernel, reason in (
        (hook, "6.1.0-18-amd64", ""),
        (hook, "5.10.0", "kernel 5.10.0 is older than 5.13"),
        ({**hook, "policy": "drop"}, "6.1.0", "the chain ip filter FORWARD drops what is forwarded"),
        ({**hook, "table": "firewalld"}, "6.1.0", "the chain ip firewalld FORWARD drops what is forwarded"),
    ):
        listed = json.dumps({"nftables": [{"metainfo": {}}, {"chain": chain}]})
        assert await modes.nftables_problem(kernel) == reason
    monkeypatch.setattr(modes, "nftables_problem", lambda: asyncio.sleep(0, "of a firewall"))
    assert await modes.choose(config.ProxyConfig(mode="auto")) == "iptables"
    monkeypatch.setattr(modes, "nftables_problem", lambda: asyncio.sleep(0, ""))
    assert await modes.choose(config.ProxyConfig(mode="auto")) == "nftables"


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
    found = fixed_chain_settings(config.ProxyConfig(node_port_addresses=given), 4, ("fd00::1", "192.168.0.1"), mode)
    assert found.node_port_cidrs == expected


@pytest.mark.parametrize(
    ("given", "cluster", "expected"),
    [
        ((), "10.1.0.0/16", ("0.0.0.0",)),
        ((), "10.1.0.0/16,fd00::/48", ("0.0.0.0", "::")),
        (("192.168.0.0/24", "fd00:77::/64"), "10.1.0.0/16", ("192.168.0.1", "fd00:77::1")),
        (("primary",), "10.1.0.0/16,fd00::/48", ("192.168.0.1", "fd00:77::1")),
        (("172.16.0.0/12",), "10.1.0.0/16", ("0.0.0.0",)),
    ],
)
def test_health_check_node_ports_are_served_where_node_ports_are(
    given: tuple[str, ...], cluster: str, expected: tuple[str, ...]
) -> None:
    found = config.ProxyConfig(node_port_addresses=given, cluster_cidrs=tuple(cluster.split(",")))
    assert check_hosts(found, ("192.168.0.1", "10.9.9.9", "fd00:77::1")) == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("1h30m", 5400), ("250ms", 0.25), ("0s", 0), ("1.5h", 5400)]
)
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert configuration_file.parse_duration(text, "x") == seconds


def test_a_mode_that_the_kernel_or_the_machine_lacks_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    modes.check("iptables")
    modes.check("nftables")
    monkeypatch.setattr(modes, "IPVS_TABLE", str(tmp_path / "ip_vs"))
    with pytest.raises(UnsupportedModeError, match="mode ipvs: this kernel has no IP virtual server"):
        modes.check("ipvs")
    (tmp_path / "ip_vs").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedModeError, match="package ipvsadm"):
        modes.check("ipvs")
    for command in ("ipvsadm", "ipset"):
        (tmp_path / command).touch(mode=0o755)
    modes.check("ipvs")


def test_the_nftables_mode_without_nft_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnsupportedModeError, match="package nftables"):
        modes.check("nftables")
