from __future__ import annotations

import pytest

from netproxy.config import ProxyConfig
from wherry import daemons, units
from wherry.errors import WherryError
from wherry.option_checks import complete
from wherry.proxy_settings import dns_config, proxy_config
from wherry.settings import Settings

CASES = [
    # proxy, dns -> the daemons beside containerd, control and agent
    ("wherry", "proxy", ["netproxy"]),
    ("wherry", "alone", ["netproxy", "dns"]),
    ("upstream", "proxy", ["dns"]),
    ("none", "alone", ["dns"]),
]


@pytest.mark.parametrize(("proxy", "dns", "expected"), CASES)
def test_every_role_is_started_so(proxy: str, dns: str, expected: list[str]) -> None:
    settings = complete(Settings(proxy=proxy, dns=dns), "192.0.2.1")
    lines = daemons.command_lines(settings)
    assert list(lines) == ["containerd", "control", "agent", *expected]
    for daemon, argv in lines.items():
        if daemon != "containerd":
            assert tuple(argv[:3]) == daemons.PYTHON
            ran = " ".join(["-P -m", *argv[3 : argv.index("--prefix")]])
            assert f" {ran}\n" in (units.FILES / units.UNITS[daemon]).read_text()


@pytest.mark.parametrize(("proxy", "dns", "expected"), CASES)
def test_dns_and_the_pod_network_run_in_one_process_each(proxy: str, dns: str, expected: list[str]) -> None:
    settings = complete(Settings(proxy=proxy, dns=dns), "192.0.2.1")
    make = {"netproxy": proxy_config, "dns": dns_config}
    reported = [make[daemon](settings, ProxyConfig()) for daemon in expected]
    assert [each.dns.enabled for each in reported].count(True) == 1
    assert [each.pod_network.enabled for each in reported].count(True) == 1
    assert [each.services for each in reported].count(True) == (proxy == "wherry")
    without = complete(Settings(proxy=proxy, dns=dns, service_load_balancer=False), "192.0.2.1")
    assert all(each.service_load_balancer for each in reported)
    assert not any(make[daemon](without, ProxyConfig()).service_load_balancer for daemon in expected)
    without = complete(Settings(proxy=proxy, dns=dns, disable=["service-load-balancer"]), "192.0.2.1")
    assert not any(make[daemon](without, ProxyConfig()).service_load_balancer for daemon in expected)
    addresses = {each.metrics_bind_address for each in reported}
    assert len(addresses) == len(reported)


@pytest.mark.parametrize(
    ("options", "expected", "dns", "pods"),
    [
        ({"pod_network": "none"}, ["netproxy"], 1, 0),
        ({"pod_network": "none", "dns": "alone"}, ["netproxy", "dns"], 1, 0),
        ({"pod_network": "none", "proxy": "none"}, ["dns"], 1, 0),
        ({"pod_network": "none", "proxy": "none", "dns": "none"}, [], 0, 0),
        ({"pod_network": "none", "cluster_dns": "none"}, ["netproxy"], 0, 0),
        ({"dns": "none"}, ["netproxy"], 0, 1),
        ({"dns": "alone", "cluster_dns": "none"}, ["netproxy"], 0, 1),
        ({"proxy": "none", "dns": "none"}, ["dns"], 0, 1),
    ],
    ids=str,
)
def test_parts_of_the_network_that_others_have_run_nowhere(
    options: dict[str, str], expected: list[str], dns: int, pods: int
) -> None:
    settings = complete(Settings(**options), "192.0.2.1")
    assert list(daemons.roles(settings)) == ["control", "agent", *expected]
    make = {"netproxy": proxy_config, "dns": dns_config}
    made = [make[daemon](settings, ProxyConfig()) for daemon in expected]
    assert [each.dns.enabled for each in made].count(True) == dns
    assert [each.pod_network.enabled for each in made].count(True) == pods
    assert dns or not any(each.dns.addresses for each in made), "nothing is done for addresses of another DNS"


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        (Settings(proxy="kube"), "--proxy kube"),
        (Settings(dns="no"), "--dns no"),
        (Settings(pod_network="cni/x"), "--pod-network cni/x: it is wherry, none, or the name of a CNI network"),
        (Settings(proxy="upstream", proxy_mode="auto"), "--proxy-mode auto"),
    ],
)
def test_what_is_no_choice_is_refused(settings: Settings, option: str) -> None:
    with pytest.raises(WherryError, match=option):
        complete(settings, "192.0.2.1")
