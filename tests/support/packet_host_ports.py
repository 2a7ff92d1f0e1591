"""The rules of the CNI plugin portmap, for every port of the node at once, and which packets they may take."""

from collections.abc import Sequence

from netproxy.model import ServicePort
from netproxy.xtables.restore_text import Tables
from tests.support.packet_case import Case
from tests.support.packet_tracer import Packet

HOST_PORT_POD = "10.244.1.99:9999"
_RULE = f"-m addrtype --dst-type LOCAL -j DNAT --to-destination {HOST_PORT_POD}"


def add_host_ports(tables: Tables) -> None:
    """Append portmap's rules to the kernel's chains of the table nat, as the plugin does."""
    for chain in ("PREROUTING", "OUTPUT"):
        tables["nat"][chain] = [*tables["nat"][chain], _RULE]


def free_for_host_ports(case: Case, ports: Sequence[ServicePort], packet: Packet) -> bool:
    """Return whether a packet is for an address of the node, and a port there that the Service does not have."""
    if not case.host.is_local(packet.destination):
        return False
    for port in ports:
        protocol = port.protocol.lower()
        at = {(ip, protocol, port.port) for ip in (port.cluster_ip, *port.external_ips, *port.load_balancer_ips)}
        at |= {(packet.destination, protocol, port.node_port), (packet.destination, "tcp", port.health_check_node_port)}
        if (packet.destination, packet.protocol, packet.port) in at:
            return False
    return True
