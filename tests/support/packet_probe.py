"""Real packets for the packet table: servers say where a packet arrived and from whom, clients what came back.

A server answers with "address:port|source": the address is the packet's destination when it arrived, so it shows
translation, and the source shows whether somebody put an own address in. Servers know any address that is local to their
namespace, whole routed ranges among them.
"""

import socket
import struct

from tests.support.netns import Namespace
from tests.support.packet_tracer import Packet

REFUSED, SILENT = "refused", "silent"
SERVER = """
import socket, struct, sys, threading
TCP, UDP = eval(sys.argv[1]), eval(sys.argv[2])
def tcp(port):
    s = socket.create_server(('', port), backlog=100)
    while True:
        c, peer = s.accept()
        here = c.getsockname()
        try: c.sendall(f'{here[0]}:{here[1]}|{peer[0]}'.encode())
        except OSError: pass
        c.close()
def udp(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(('', port)); s.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
    while True:
        data, extra, _, peer = s.recvmsg(100, 100)
        info = struct.unpack('=I4s4s', extra[0][2][:12])
        text = f'{socket.inet_ntoa(info[2])}:{port}|{peer[0]}'.encode()
        try: s.sendmsg([text], [(socket.IPPROTO_IP, 8, struct.pack('=I4s4s', 0, info[2], b'\\0' * 4))], 0, peer)
        except OSError: pass
threads = [threading.Thread(target=tcp, args=(p,)) for p in TCP] + [threading.Thread(target=udp, args=(p,)) for p in UDP]
for each in threads: each.start()
"""


def send(origin: Namespace, packet: Packet, wait: float) -> str:
    """Send a packet of the table from the namespace that has its source; return the server's word, REFUSED or SILENT."""

    async def exchange() -> str:
        return _sctp(packet, wait) if packet.protocol == "sctp" else _ask(packet, wait)

    return origin.inside(exchange)


def _ask(packet: Packet, wait: float) -> str:
    kind = socket.SOCK_DGRAM if packet.protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.settimeout(wait)
        try:
            sock.bind((packet.source, 0))
            sock.connect((packet.destination, packet.port))
            if packet.protocol == "udp":
                sock.send(b"?")
            return sock.recv(200).decode()
        except TimeoutError:
            return SILENT
        except ConnectionRefusedError:
            return REFUSED


def _sctp(packet: Packet, wait: float) -> str:
    """The first packet of an SCTP association, made by hand: few kernels here speak it, all translate it."""
    common = struct.pack("!HHI", 40000, packet.port, 0)
    chunk = struct.pack("!BBHIIHHI", 1, 0, 20, 0x1234, 65535, 1, 1, 7)  # INIT
    body = common + struct.pack("<I", crc32c(common + bytes(4) + chunk)) + chunk
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP) as sock:
        sock.bind((packet.source, 0))
        sock.sendto(body, (packet.destination, 0))
    return SILENT


def crc32c(data: bytes) -> int:
    """Return the checksum that SCTP uses (RFC 3309)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def watch_sctp(namespace: Namespace) -> socket.socket:
    """Return a socket that sees every SCTP packet which the namespace gets."""

    async def opened() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_SCTP)
        sock.settimeout(2)
        return sock

    return namespace.inside(opened)


def arrived(sock: socket.socket) -> str:
    """Return "address:port|source" of the next packet that `watch_sctp` sees."""
    data = sock.recv(500)
    length = (data[0] & 15) * 4
    (port,) = struct.unpack_from("!H", data, length + 2)
    return f"{socket.inet_ntoa(data[16:20])}:{port}|{socket.inet_ntoa(data[12:16])}"
