"""Chain names as upstream forms them, so that people, documentation and other software recognize them.

A per-port chain is a prefix and the first 16 characters of base32(sha256(service port name + protocol in lower case
[+ endpoint])): the kernel allows 28 characters in all (pkg/proxy/iptables, servicePortChainName and its siblings).
"""

from __future__ import annotations

import base64
import functools
import hashlib

SERVICES = "KUBE-SERVICES"
EXTERNAL_SERVICES = "KUBE-EXTERNAL-SERVICES"
NODE_PORTS = "KUBE-NODEPORTS"
POSTROUTING = "KUBE-POSTROUTING"
MARK_MASQ = "KUBE-MARK-MASQ"
FORWARD = "KUBE-FORWARD"
PROXY_FIREWALL = "KUBE-PROXY-FIREWALL"
FIREWALL = "KUBE-FIREWALL"
CANARY = "KUBE-PROXY-CANARY"

# Chains that upstream's proxy does not have: see iptables_chains.py for what they do.
SERVICE_RANGE = "WHERRY-SERVICE-RANGE"
POD_MASQUERADE = "WHERRY-POD-MASQ"
POD_FORWARD = "WHERRY-POD-FORWARD"
LOCALHOST_NODE_PORTS = "WHERRY-LOCAL-NODEPORTS"

PER_PORT_PREFIXES = ("KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "WHERRY-LB-", "KUBE-XLB-")
"""The last is from kube-proxy before 1.24: never written, but removed where an old proxy left it."""


def is_per_port(chain: str) -> bool:
    """Return whether a chain belongs to one Service or one port of it."""
    return chain.startswith(PER_PORT_PREFIXES)


def _hashed(prefix: str, text: str) -> str:
    return prefix + base64.b32encode(hashlib.sha256(text.encode()).digest()).decode()[:16]


@functools.lru_cache(maxsize=8192)
def _of_port(service_port_name: str, protocol: str) -> str:
    return _hashed("", service_port_name + protocol.lower())


def cluster_policy(service_port_name: str, protocol: str) -> str:
    """Name the chain that balances over the endpoints of the policy Cluster."""
    return "KUBE-SVC-" + _of_port(service_port_name, protocol)


def local_policy(service_port_name: str, protocol: str) -> str:
    """Name the chain that balances over the endpoints of the policy Local."""
    return "KUBE-SVL-" + _of_port(service_port_name, protocol)


def external(service_port_name: str, protocol: str) -> str:
    """Name the chain that takes traffic addressed to node ports, external and load balancer addresses."""
    return "KUBE-EXT-" + _of_port(service_port_name, protocol)


def load_balancer_firewall(service_port_name: str, protocol: str) -> str:
    """Name the chain that lets a load balancer's source ranges in: of a port, or of "namespace/name" without a protocol."""
    return "KUBE-FW-" + _of_port(service_port_name, protocol)


def load_balancer(service: str) -> str:
    """Name the chain that leads accepted packets to the port of the Service that they are for."""
    return "WHERRY-LB-" + _of_port(service, "")


def endpoint(service_port_name: str, protocol: str, endpoint_text: str) -> str:
    """Name the chain that translates to one endpoint ("10.180.0.1:80")."""
    return _hashed("KUBE-SEP-", service_port_name + protocol.lower() + endpoint_text)
