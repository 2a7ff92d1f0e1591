"""Ethernet frames that a pod sends: its own, and with addresses that are not its own."""

from __future__ import annotations

import ipaddress
import struct

from tests.host.netproxy.conftest import PODS

A, B, C, GATEWAY = PODS["pod-a"], PODS["pod-b"], "10.244.1.4", "10.244.1.1"
A6, B6, C6, GATEWAY6 = "fd00:244:1::2", "fd00:244:1::3", "fd00:244:1::4", "fd00:244:1::1"
BROADCAST, ALL_NODES = "ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01"
FOREIGN = "02:00:00:00:00:99"


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def ip(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ether(source: str, target: str, kind: int, body: bytes) -> bytes:
    return mac(target) + mac(source) + struct.pack("!H", kind) + body


def ip4(source: str, target: str, protocol: int, body: bytes) -> bytes:
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0, ip(source), ip(target))
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def ip6(source: str, target: str, protocol: int, body: bytes, place: int, hops: int = 255) -> bytes:
    """An IPv6 packet; the checksum of what it carries is put at `place` of its body."""
    pseudo = ip(source) + ip(target) + struct.pack("!II", len(body), protocol)
    body = body[:place] + struct.pack("!H", checksum(pseudo + body)) + body[place + 2 :]
    return struct.pack("!IHBB", 6 << 28, len(body), protocol, hops) + ip(source) + ip(target) + body


def fragment(kind: int, offset: int, part: bytes, number: int) -> bytes:
    """A fragment of an IPv6 packet from pod-a to pod-b: 8 bytes at least are missing after one with the offset 0."""
    head = struct.pack("!BBHI", kind, 0, offset | (offset == 0), number)
    return struct.pack("!IHBB", 6 << 28, len(head) + len(part), 44, 64) + ip(A6) + ip(B6) + head + part


def udp(payload: bytes, source: int = 4000, target: int = 7000) -> bytes:
    return struct.pack("!HHHH", source, target, 8 + len(payload), 0) + payload


def icmp(kind: int, body: bytes) -> bytes:
    text = struct.pack("!BBH", kind, 0, 0) + body
    return text[:2] + struct.pack("!H", checksum(text)) + text[4:]


def arp(operation: int, own: str, address: str, target: str, note: bytes, hardware: int = 1) -> bytes:
    head = struct.pack("!HHBBH", hardware, 0x800, 6, 4, operation)
    return head + struct.pack("!6s4s6s4s", mac(own), ip(address), bytes(6), ip(target)) + note


def discovery(kind: int, subject: str, options: bytes = b"") -> bytes:
    """ICMPv6 with four bytes of flags and an address, as neighbour discovery has it."""
    return struct.pack("!BBHI", kind, 0, 0, 0x60000000 if kind == 136 else 0) + ip(subject) + options


def link_option(kind: int, address: str) -> bytes:
    """A link-layer address option of discovery: 1 the source's, 2 the target's."""
    return bytes((kind, 1)) + mac(address)


NONCE = bytes((14, 1, 1, 2, 3, 4, 5, 6))


def frames(own: str, other: str, link: str, other_link: str) -> dict[str, tuple[bool, bytes]]:
    """Return frames of pod-a, whose MAC is `own`, to pod-b: whether each may arrive, and its bytes with its name in it."""
    all_nodes = "ff02::1"

    def note(name: str) -> bytes:
        return f"<{name}>".encode()

    def to_b(name: str, packet: bytes, kind: int = 0x800, source: str = own) -> bytes:
        return ether(source, other, kind, packet)

    def six(name: str, source: str, target: str, how: str = "udp") -> bytes:
        return ip6(source, target, 17, udp(note(name)), 6)

    def multicast(name: str, packet: bytes) -> bytes:
        # What follows the packet is padding of the frame.
        return ether(own, ALL_NODES, 0x86DD, packet + note(name))

    def nd(name: str, kind: int, source: str, subject: str, options: bytes = b"", hops: int = 255) -> bytes:
        return multicast(name, ip6(source, all_nodes, 58, discovery(kind, subject, options), 2, hops))

    def nd_behind(made: bytes) -> bytes:
        """Discovery behind an extension header: options for the destination, padding alone."""
        bare, options = ip6(A6, all_nodes, 58, made, 2), bytes((58, 0, 1, 4, 0, 0, 0, 0))
        head = struct.pack("!IHBB", 6 << 28, len(made) + len(options), 60, 255)
        return multicast("advert-behind-options", head + bare[8:40] + options + bare[40:])

    made: dict[str, tuple[bool, bytes]] = {}

    def case(name: str, allowed: bool, frame: bytes) -> None:
        made[name] = (allowed, frame)

    case("own-ipv4", True, to_b("", ip4(A, B, 17, udp(note("own-ipv4")))))
    case("foreign-mac", False, to_b("", ip4(A, B, 17, udp(note("foreign-mac"))), source=FOREIGN))
    case("foreign-ipv4", False, to_b("", ip4("10.244.1.77", B, 17, udp(note("foreign-ipv4")))))
    case("gateway-ipv4", False, to_b("", ip4(GATEWAY, B, 17, udp(note("gateway-ipv4")))))
    case("outside-ipv4", False, to_b("", ip4("192.168.77.2", B, 17, udp(note("outside-ipv4")))))
    case("own-ipv6", True, to_b("", six("own-ipv6", A6, B6), 0x86DD))
    case("foreign-ipv6", False, to_b("", six("foreign-ipv6", "fd00:244:1::77", B6), 0x86DD))
    case("link-local-udp", False, to_b("", six("link-local-udp", link, other_link), 0x86DD))
    case("to-link-local", False, to_b("", six("to-link-local", A6, other_link), 0x86DD))
    case("own-arp", True, ether(own, BROADCAST, 0x806, arp(2, own, A, B, note("own-arp"))))
    case("own-gratuitous-arp", True, ether(own, BROADCAST, 0x806, arp(1, own, A, A, note("own-gratuitous-arp"))))
    case("arp-probe", True, ether(own, BROADCAST, 0x806, arp(1, own, "0.0.0.0", A, note("arp-probe"))))
    for name, frame in {
        "arp-probe-of-another": arp(1, own, "0.0.0.0", C, b""),
        "arp-answer": arp(2, own, GATEWAY, B, b""),
        "arp-question": arp(1, own, GATEWAY, B, b""),
        "arp-other-mac": arp(2, FOREIGN, A, B, b""),
        "gratuitous-arp": arp(1, own, C, C, b""),
        "arp-of-nobody": arp(2, own, "0.0.0.0", B, b""),
        "arp-of-ieee802": arp(2, own, GATEWAY, B, b"", 6),
        "arp-of-ieee802-mac": arp(2, FOREIGN, A, B, b"", 6),
        "inverse-arp": arp(8, own, A, B, b""),
    }.items():
        case(name, False, ether(own, BROADCAST, 0x806, frame + note(name)))
    case("own-advert", True, nd("own-advert", 136, A6, A6, link_option(2, own)))
    case("advert-without-option", True, nd("advert-without-option", 136, A6, A6))
    case("advert-with-less-hops", False, nd("advert-with-less-hops", 136, A6, A6, hops=64))
    case("advert-of-other-mac", False, nd("advert-of-other-mac", 136, A6, A6, link_option(2, FOREIGN)))
    second = NONCE + link_option(2, FOREIGN)
    case("advert-of-second-option", False, nd("advert-of-second-option", 136, A6, A6, second))
    case("advert-of-another", False, nd("advert-of-another", 136, A6, GATEWAY6, link_option(2, own)))
    case("advert-by-another", False, nd("advert-by-another", 136, GATEWAY6, GATEWAY6))
    case("advert-by-nobody", False, nd("advert-by-nobody", 136, "::", A6))
    case("advert-behind-options", False, nd_behind(discovery(136, GATEWAY6, link_option(2, own))))
    case("own-solicit", True, nd("own-solicit", 135, link, B6, link_option(1, own)))
    case("solicit-of-other-mac", False, nd("solicit-of-other-mac", 135, link, B6, link_option(1, FOREIGN)))
    case("solicit-with-less-hops", False, nd("solicit-with-less-hops", 135, link, B6, hops=64))
    case("dad", True, nd("dad", 135, "::", A6))
    case("dad-with-nonce", True, nd("dad-with-nonce", 135, "::", A6, NONCE))
    case("dad-of-link-local", True, nd("dad-of-link-local", 135, "::", link))
    case("dad-of-another", False, nd("dad-of-another", 135, "::", C6))
    case("dad-of-another-link", False, nd("dad-of-another-link", 135, "::", other_link))
    case("router-solicit", True, multicast("router-solicit", ip6(link, all_nodes, 58, b"\x85" + bytes(7), 2)))
    requested = b"\x85" + bytes(7) + link_option(1, FOREIGN)
    case(
        "router-solicit-of-other-mac",
        False,
        multicast("router-solicit-of-other-mac", ip6(A6, all_nodes, 58, requested, 2)),
    )
    case("router-advert", False, nd("router-advert", 134, link, "::"))
    case("redirect-ipv6", False, nd("redirect-ipv6", 137, link, "::"))
    case("redirect-ipv4", False, to_b("", ip4(A, B, 1, icmp(5, ip(A) + note("redirect-ipv4")))))
    case("router-advert-ipv4", False, to_b("", ip4(A, B, 1, icmp(9, ip(A) + note("router-advert-ipv4")))))
    case("dhcp-answer", False, to_b("", ip4(A, B, 17, udp(note("dhcp-answer"), 67, 68))))
    case("dhcp-answer-by-any-port", False, to_b("", ip4(A, B, 17, udp(note("dhcp-answer-by-any-port"), 4000, 68))))
    case("dhcpv6-answer", False, to_b("", ip6(A6, B6, 17, udp(note("dhcpv6-answer"), 547, 546), 6), 0x86DD))
    # DHCPv6 behind options for the destination that the first fragment does not hold whole: 16 bytes, of which it has 8.
    hidden = ip6(A6, B6, 17, udp(note("dhcpv6-in-second-fragment"), 547, 546), 6)[40:]
    options = bytes((17, 1, 1, 4, 0, 0, 0, 0)), bytes((1, 6, 0, 0, 0, 0, 0, 0))
    case("dhcpv6-first-fragment", False, to_b("", fragment(60, 0, options[0], 1), 0x86DD))
    case("dhcpv6-in-second-fragment", False, to_b("", fragment(60, 8, options[1] + hidden, 1), 0x86DD))
    whole = ip6(A6, B6, 17, udp(note("first-fragment") + bytes(24) + note("second-fragment")), 6)[40:]
    case("first-fragment", True, to_b("", fragment(17, 0, whole[:48], 2), 0x86DD))
    case("second-fragment", True, to_b("", fragment(17, 48, whole[48:], 2), 0x86DD))
    tagged = struct.pack("!HH", 5, 0x800) + ip4(A, B, 17, udp(note("tagged")))
    case("tagged", False, ether(own, other, 0x8100, tagged))
    for name, tag in {"tagged-priority-alone": (0x8100, 0), "tagged-twice": (0x88A8, 5)}.items():
        body = struct.pack("!HH", 0, 0x800) + ip4("10.244.1.77", B, 17, udp(note(name)))
        double = struct.pack("!HH", tag[1], 0x8100) + body
        case(name, False, ether(own, other, tag[0], double if tag[1] else body))
    case("strange-protocol", False, ether(own, other, 0x88B5, note("strange-protocol")))
    return made
