"""The sandbox image: one process that holds a pod's namespaces open and does nothing else.

It is made here, byte by byte, so that a node needs no registry to start its first pod, and so that a sandbox costs a few
kilobytes and no start-up time. The program ignores SIGCHLD, upon which the kernel itself reaps the orphans that a shared
process namespace leaves to its first process, and then sleeps for ever. containerd ends it with SIGKILL. It is not dumpable: in
a shared process namespace, containers of the same user could otherwise trace it and have it end the sandbox.
"""

from __future__ import annotations

import platform
import struct
from pathlib import Path

from wherry import oci

IMAGE = "wherry.local/pause:2"
"""No node pulls an image of this name: the agent uses images of wherry.local only if they are there (agent/images/names.py)."""
_SIGCHLD, _SIG_IGN = 17, 1
_PR_SET_DUMPABLE = 4
_BASE = 0x400000
_HEADERS = 64 + 56


def _x86_64() -> bytes:
    code = b"".join(
        (
            b"\xb8" + struct.pack("<I", 157),  # mov eax, prctl
            b"\xbf" + struct.pack("<I", _PR_SET_DUMPABLE),  # mov edi, PR_SET_DUMPABLE
            b"\x31\xf6",  # xor esi, esi: no
            b"\x0f\x05",  # syscall
            b"\xb8" + struct.pack("<I", 13),  # mov eax, rt_sigaction
            b"\xbf" + struct.pack("<I", _SIGCHLD),  # mov edi, SIGCHLD
            b"\x48\x8d\x35" + struct.pack("<i", 19),  # lea rsi, [rip + 19]: the sigaction after the code
            b"\x31\xd2",  # xor edx, edx: the old action is not wanted
            b"\x41\xba" + struct.pack("<I", 8),  # mov r10d, 8: bytes in a signal set
            b"\x0f\x05",  # syscall
            b"\xb8" + struct.pack("<I", 34),  # again: mov eax, pause
            b"\x0f\x05",  # syscall
            b"\xeb\xf7",  # jmp again
        )
    )
    return code + struct.pack("<QQQQ", _SIG_IGN, 0, 0, 0)


def _aarch64() -> bytes:
    def move(register: int, value: int) -> int:
        return 0xD2800000 | value << 5 | register

    supervisor_call = 0xD4000001
    code = [
        move(8, 167),  # prctl
        move(0, _PR_SET_DUMPABLE),
        move(1, 0),
        supervisor_call,
        move(8, 134),  # rt_sigaction
        move(0, _SIGCHLD),
        0x10000001 | 13 << 5,  # adr x1, 13 instructions on: the sigaction after the code
        move(2, 0),
        move(3, 8),
        supervisor_call,
        move(8, 73),  # again: ppoll(none, 0, no timeout, no mask), for there is no pause here
        move(0, 0),
        move(1, 0),
        move(2, 0),
        move(3, 0),
        move(4, 0),
        supervisor_call,
        0x14000000 | (-7 & 0x3FFFFFF),  # b again
        0xD503201F,  # nop: keeps what follows at a multiple of 8
    ]
    return struct.pack(f"<{len(code)}I", *code) + struct.pack("<QQQQ", _SIG_IGN, 0, 0, 0)


_MACHINES = {"x86_64": (62, _x86_64), "aarch64": (183, _aarch64)}


def program(machine: str = platform.machine()) -> bytes:
    """Return the static ELF executable for a machine (as in `uname -m`)."""
    if machine not in _MACHINES:
        raise NotImplementedError(f"no built-in sandbox program for {machine}: name an image with --sandbox-image")
    number, assemble = _MACHINES[machine]
    code = assemble()
    size = _HEADERS + len(code)
    identity = b"\x7fELF" + bytes((2, 1, 1, 0)) + bytes(8)
    header = struct.pack("<HHIQQQIHHHHHH", 2, number, 1, _BASE + _HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return identity + header + segment + code


def write_image(path: Path) -> None:
    """Write the sandbox image as an archive that containerd imports."""
    oci.archive(path, IMAGE, ["/pause"], {"pause": program()})
    path.chmod(0o600)
