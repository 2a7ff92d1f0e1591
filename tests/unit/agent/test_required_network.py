"""The pod network that a node requires, and the networks that a runtime reports."""

from __future__ import annotations

import json

import pytest

from agent.node import required_network
from agent.node.required_network import UNREADY


def info(*names: object) -> dict[str, str]:
    """The verbose status of containerd with networks of these names."""
    networks = [{"Config": {"Name": name, "CNIVersion": "1.0.0"}, "IFName": "eth0"} for name in names]
    return {"cniconfig": json.dumps({"PluginConfDir": "/etc/cni/net.d", "Networks": networks})}


@pytest.mark.parametrize(
    ("names", "seen"),
    [
        (("cni-loopback", "podman"), "podman"),
        (("cni-loopback",), "none"),
        ((), "none"),
        (("a", "b"), "a, b"),
        (("flannel2",), "flannel2"),
    ],
)
def test_a_node_is_not_ready_with_another_network_than_it_requires(names: tuple[str, ...], seen: str) -> None:
    found = required_network.problem("flannel", info(*names))
    assert found == (f"{UNREADY}the node requires the pod network flannel, and the container runtime has loaded {seen}")


def test_a_network_of_the_required_name_is_accepted() -> None:
    assert required_network.problem("flannel", info("cni-loopback", "flannel")) == ""


def test_a_node_that_requires_no_network_accepts_any() -> None:
    assert required_network.problem("", info("podman")) == ""


@pytest.mark.parametrize(
    "reported",
    [
        {},
        {"cniconfig": ""},
        {"cniconfig": "[]"},
        {"cniconfig": "{}"},
        {"cniconfig": "null"},
        {"cniconfig": '{"Networks": 1}'},
        {"cniconfig": '{"Networks": [{}]}'},
        {"cniconfig": '{"Networks": [{"Config": null}]}'},
    ],
    ids=str,
)
def test_a_runtime_that_reports_no_networks_is_judged_by_its_condition(reported: dict[str, str]) -> None:
    assert required_network.problem("flannel", reported) == ""


def test_a_long_name_is_shortened() -> None:
    assert len(required_network.problem("flannel", info("x" * 100_000))) < 2_000
