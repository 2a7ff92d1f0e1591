"""Chain names against those that upstream's kube-proxy gives."""

import pytest

from netproxy.model import ServicePortName
from netproxy.xtables import chain_names


@pytest.mark.parametrize(
    ("made", "known"),
    [
        (chain_names.cluster_policy("default/kubernetes:https", "TCP"), "KUBE-SVC-NPX46M4PTMTKRN6Y"),
        (chain_names.cluster_policy("kube-system/kube-dns:dns", "UDP"), "KUBE-SVC-TCOU7JCQXEZGVUNU"),
        (chain_names.cluster_policy("kube-system/kube-dns:dns-tcp", "TCP"), "KUBE-SVC-ERIFXISQEP7F7OF4"),
        (chain_names.cluster_policy("ns1/svc1:p80", "TCP"), "KUBE-SVC-XPGD46QRK7WJZT7O"),
        (chain_names.endpoint("ns1/svc1:p80", "TCP", "10.180.0.1:80"), "KUBE-SEP-SXIVWICOYRO3J4NJ"),
        (chain_names.external("ns2/svc2:p80", "TCP"), "KUBE-EXT-GNZBNJ2PO5MGZ6GT"),
        (chain_names.local_policy("ns2/svc2:p80", "TCP"), "KUBE-SVL-GNZBNJ2PO5MGZ6GT"),
        (chain_names.load_balancer_firewall("ns2/svc2:p80", "TCP"), "KUBE-FW-GNZBNJ2PO5MGZ6GT"),
    ],
)
def test_chains_are_named_as_upstream_names_them(made: str, known: str) -> None:
    assert made == known
    assert len(made) <= 28  # the kernel's limit


def test_a_port_without_a_name_leaves_no_colon() -> None:
    assert str(ServicePortName("default", "web", "")) == "default/web"
    assert str(ServicePortName("default", "web", "http")) == "default/web:http"
