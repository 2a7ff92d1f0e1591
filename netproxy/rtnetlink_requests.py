"""Requests of rtnetlink(7) that change links, addresses, routes, neighbours and FDB entries, encoded by pyroute2.

Each is what iproute2 sends for the command in its docstring. No I/O: netlink.py sends them.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

from netproxy import netlink
from netproxy.pyroute2_messages import ifaddrmsg, ifinfmsg, ndmsg, rtmsg
from netproxy.rtnetlink_tables import MAIN_TABLE, PERMANENT, UP

NEW_LINK, DELETE_LINK, NEW_ADDRESS, DELETE_ADDRESS = 16, 17, 20, 21
NEW_ROUTE, DELETE_ROUTE, NEW_NEIGHBOUR, DELETE_NEIGHBOUR = 24, 25, 28, 29
_REPLACE, _EXCLUSIVE, _CREATE = 0x100, 0x200, 0x400
_UNICAST, _UNREACHABLE = 1, 7
_LINK_SCOPE, _HOST_SCOPE, _NOWHERE = 253, 254, 255
_ONLINK, _SELF, _BRIDGE = 4, 2, 7
_NO_LINK_LOCAL_LEARN = 1 << 0
"""BR_BOOLOPT_NO_LL_LEARN."""
_NO_ADDRESS = 1
"""IN6_ADDR_GEN_MODE_NONE."""
_MAC = "NDA_LLADDR"
Attributes = list[tuple[str, Any]]


def _encode(message: Any, kind: int, how: int, attributes: Iterable[tuple[str, Any]], **fields: int) -> bytes:
    for name, value in fields.items():
        message[name] = value
    message["attrs"] = list(attributes)
    message["header"].update(type=kind, flags=netlink.REQUEST | netlink.ACK | how, sequence_number=1)
    message.encode()
    return bytes(message.data)


def _request(message: Callable[[], Any], kind: int, how: int, attributes: Attributes, **fields: int) -> bytes:
    """Return a request of attributes that are numbers and addresses (text).

    Requests that differ in their addresses alone are encoded by pyroute2 once, and the addresses put in their places:
    pyroute2 takes 40 to 70 µs for each.
    """
    blank = tuple((name, _blank(name, value)) for name, value in attributes)
    template, places = _template(message, kind, how, blank, tuple(fields.items()))
    data = bytearray(template)
    for place, (name, value) in zip(places, attributes, strict=True):
        if isinstance(value, str):
            packed = bytes.fromhex(value.replace(":", "")) if name == _MAC else socket.inet_pton(_family(value), value)
            data[place : place + len(packed)] = packed
    return bytes(data)


def _blank(name: str, value: str | int) -> str | int:
    if not isinstance(value, str):
        return value
    return "00:00:00:00:00:00" if name == _MAC else "::" if ":" in value else "0.0.0.0"


@functools.lru_cache(maxsize=256)
def _template(
    message: Callable[[], Any],
    kind: int,
    how: int,
    attributes: tuple[tuple[str, str | int], ...],
    fields: tuple[tuple[str, int], ...],
) -> tuple[bytes, tuple[int, ...]]:
    """Return an encoded request, and the places of the attributes' values in it."""
    data = _encode(message(), kind, how, attributes, **dict(fields))
    places, place = [], len(data) - sum(_size(name, value) for name, value in attributes)
    for name, value in attributes:
        places.append(place + 4)
        place += _size(name, value)
    return data, tuple(places)


def _size(name: str, value: str | int) -> int:
    """Return the bytes of an attribute with its header and padding."""
    if isinstance(value, int):
        return 8
    return 12 if name == _MAC else 4 + len(socket.inet_pton(_family(value), value))


def _family(address: str) -> int:
    return int(socket.AF_INET6 if ":" in address else socket.AF_INET)


def replace_route(
    cidr: str, device: int, protocol: int, *, via: str = "", onlink: bool = False, source: str = "", metric: int = 0
) -> bytes:
    """`ip route replace CIDR [via VIA] dev DEVICE [onlink] [src SOURCE] [metric METRIC] proto PROTOCOL`."""
    attributes: Attributes = [("RTA_OIF", device)]
    attributes += [("RTA_GATEWAY", via)] if via else []
    attributes += [("RTA_PREFSRC", source)] if source else []
    scope = _LINK_SCOPE if not via else 0
    return _route(NEW_ROUTE, cidr, protocol, attributes, metric, scope=scope, flags=_ONLINK if onlink else 0)


def replace_unreachable(cidr: str, protocol: int, metric: int) -> bytes:
    """`ip route replace unreachable CIDR metric METRIC proto PROTOCOL`."""
    return _route(NEW_ROUTE, cidr, protocol, [], metric, type=_UNREACHABLE)


def delete_route(cidr: str, via: str, device: int, protocol: int) -> bytes:
    """`ip route del CIDR via VIA dev DEVICE proto PROTOCOL`."""
    attributes: Attributes = [("RTA_OIF", device), ("RTA_GATEWAY", via)]
    return _route(DELETE_ROUTE, cidr, protocol, attributes, 0, type=0, scope=_NOWHERE)


def _route(kind: int, cidr: str, protocol: int, attributes: Attributes, metric: int, **fields: int) -> bytes:
    network = ipaddress.ip_network(cidr)
    how = _CREATE | _REPLACE if kind == NEW_ROUTE else 0
    where: Attributes = [("RTA_DST", str(network.network_address)), *attributes]
    where += [("RTA_PRIORITY", metric)] if metric else []
    fields = {"type": _UNICAST, **fields, "family": _family(cidr), "dst_len": network.prefixlen}
    return _request(rtmsg, kind, how, where, table=MAIN_TABLE, proto=protocol, **fields)


def replace_neighbour(address: str, mac: str, device: int) -> bytes:
    """`ip neigh replace ADDRESS lladdr MAC dev DEVICE nud permanent`."""
    where: Attributes = [("NDA_DST", address), ("NDA_LLADDR", mac)]
    fields = {"family": _family(address), "ifindex": device, "state": PERMANENT}
    return _request(ndmsg, NEW_NEIGHBOUR, _CREATE | _REPLACE, where, **fields)


def delete_neighbour(address: str, device: int) -> bytes:
    """`ip neigh del ADDRESS dev DEVICE`."""
    return _request(ndmsg, DELETE_NEIGHBOUR, 0, [("NDA_DST", address)], family=_family(address), ifindex=device)


def replace_fdb_entry(mac: str, destination: str, device: int) -> bytes:
    """`bridge fdb replace MAC dev DEVICE dst DESTINATION`."""
    return _fdb_entry(NEW_NEIGHBOUR, _CREATE | _REPLACE, mac, destination, device)


def delete_fdb_entry(mac: str, destination: str, device: int) -> bytes:
    """`bridge fdb del MAC dev DEVICE dst DESTINATION`."""
    return _fdb_entry(DELETE_NEIGHBOUR, 0, mac, destination, device)


def _fdb_entry(kind: int, how: int, mac: str, destination: str, device: int) -> bytes:
    where: Attributes = [("NDA_LLADDR", mac), ("NDA_DST", destination)]
    fields = {"family": _BRIDGE, "ifindex": device, "state": PERMANENT, "flags": _SELF}
    return _request(ndmsg, kind, how, where, **fields)


def replace_address(address: str, device: int, *, host: bool = False, no_dad: bool = False) -> bytes:
    """`ip address replace ADDRESS/32 dev DEVICE [scope host] [nodad]`, or /128."""
    fields = {"scope": _HOST_SCOPE if host else 0, "flags": 2 if no_dad else 0}  # IFA_F_NODAD
    return _address(NEW_ADDRESS, _CREATE | _REPLACE, address, device, **fields)


def delete_address(address: str, device: int) -> bytes:
    """`ip address del ADDRESS/32 dev DEVICE`, or /128."""
    return _address(DELETE_ADDRESS, 0, address, device)


def _address(kind: int, how: int, address: str, device: int, **fields: int) -> bytes:
    where: Attributes = [("IFA_LOCAL", address), ("IFA_ADDRESS", address)]
    fields |= {"family": _family(address), "prefixlen": 128 if ":" in address else 32, "index": device}
    return _request(ifaddrmsg, kind, how, where, **fields)


def add_link(name: str, kind: str, mtu: int, *, mac: str = "", data: Attributes | None = None) -> bytes:
    """`ip link add NAME [address MAC] mtu MTU type KIND DATA`."""
    info: Attributes = [("IFLA_INFO_KIND", kind)]
    info += [("IFLA_INFO_DATA", {"attrs": data})] if data else []
    attributes: Attributes = [("IFLA_IFNAME", name), ("IFLA_MTU", mtu), ("IFLA_LINKINFO", {"attrs": info})]
    attributes += [("IFLA_ADDRESS", mac)] if mac else []
    return _encode(ifinfmsg(), NEW_LINK, _CREATE | _EXCLUSIVE, attributes)


def vxlan(vni: int, local: str, port: int) -> Attributes:
    """Return the data of a VXLAN device that learns nothing: `id VNI local LOCAL dstport PORT nolearning`."""
    own = "IFLA_VXLAN_LOCAL6" if ":" in local else "IFLA_VXLAN_LOCAL"
    return [("IFLA_VXLAN_ID", vni), (own, local), ("IFLA_VXLAN_PORT", port), ("IFLA_VXLAN_LEARNING", 0)]


def set_up(device: int, mtu: int = 0) -> bytes:
    """`ip link set dev DEVICE [mtu MTU] up`."""
    attributes: Attributes = [("IFLA_MTU", mtu)] if mtu else []
    return _encode(ifinfmsg(), NEW_LINK, 0, attributes, index=device, flags=UP, change=UP)


def without_link_local_address(device: int) -> bytes:
    """`ip link set dev DEVICE addrgenmode none`."""
    inet6 = ("AF_INET6", {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", _NO_ADDRESS)]})
    return _encode(ifinfmsg(), NEW_LINK, 0, [("IFLA_AF_SPEC", {"attrs": [inet6]})], index=device)


def set_bridge(device: int, group_fwd_mask: int, *, link_local_learn: bool) -> bytes:
    """`ip link set dev DEVICE type bridge group_fwd_mask MASK no_linklocal_learn 0|1`."""
    option = struct.pack("=II", 0 if link_local_learn else _NO_LINK_LOCAL_LEARN, _NO_LINK_LOCAL_LEARN)
    data: Attributes = [("IFLA_BR_GROUP_FWD_MASK", group_fwd_mask), ("IFLA_BR_MULTI_BOOLOPT", option)]
    info: Attributes = [("IFLA_INFO_KIND", "bridge"), ("IFLA_INFO_DATA", {"attrs": data})]
    return _encode(ifinfmsg(), NEW_LINK, 0, [("IFLA_LINKINFO", {"attrs": info})], index=device)


def delete_link(device: int) -> bytes:
    """`ip link del dev DEVICE`."""
    return _encode(ifinfmsg(), DELETE_LINK, 0, [], index=device)
