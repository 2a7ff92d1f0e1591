"""Facts of the machine for the Node object: processors, memory, disk, identity, addresses."""

from __future__ import annotations

import ipaddress
import os
import platform
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "s390x": "s390x", "ppc64le": "ppc64le"}


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts that do not change while the agent runs; sizes in bytes."""

    cpus: int
    memory: int
    swap: int
    disk: int
    huge_pages: dict[str, int]
    architecture: str
    kernel: str
    os_image: str
    machine_id: str
    system_uuid: str
    boot_id: str
    app_armor: bool = False


def inspect(root_dir: Path) -> Machine:
    """Read the machine's facts; the disk is the one that holds the agent's root folder."""
    info = _meminfo()
    root_dir.mkdir(parents=True, exist_ok=True, mode=0o750)
    disk = os.statvfs(root_dir)
    return Machine(
        cpus=os.cpu_count() or 1,
        memory=info.get("MemTotal", 0),
        swap=info.get("SwapTotal", 0),
        disk=disk.f_blocks * disk.f_frsize,
        huge_pages=_huge_pages(),
        architecture=architecture(),
        kernel=platform.release(),
        os_image=_os_release().get("PRETTY_NAME", "Linux"),
        machine_id=_first_line("/etc/machine-id", "/var/lib/dbus/machine-id"),
        system_uuid=_first_line("/sys/class/dmi/id/product_uuid", "/etc/machine-id"),
        boot_id=_first_line("/proc/sys/kernel/random/boot_id"),
        app_armor=_first_line("/sys/module/apparmor/parameters/enabled").startswith("Y"),
    )


def swap_is_on() -> bool:
    """Return whether the kernel swaps to anything but compressed memory."""
    lines = Path("/proc/swaps").read_text().splitlines()[1:]
    return any(not line.startswith("/dev/zram") for line in lines)


def architecture() -> str:
    """Return the processor's architecture by Go's name."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def _meminfo() -> dict[str, int]:
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()
        if number and number[0].isdigit():
            values[name] = int(number[0]) * (1024 if len(number) > 1 else 1)
    return values


def _huge_pages() -> dict[str, int]:
    """Return the bytes of huge pages by size, as 2Mi."""
    result = {}
    for folder in sorted(Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")):
        kilobytes = int(folder.name.removeprefix("hugepages-").removesuffix("kB"))
        size = f"{kilobytes // 1048576}Gi" if kilobytes % 1048576 == 0 else f"{kilobytes // 1024}Mi"
        result[size] = int((folder / "nr_hugepages").read_text()) * kilobytes * 1024
    return result


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def _first_line(*paths: str) -> str:
    for path in paths:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text:
            return text
    return ""


def own_address(server: str) -> str:
    """Return the address this machine uses towards the API server, or the world where that is itself.

    No packet is sent: connecting a datagram socket only asks the kernel for the route.
    """
    url = urlsplit(server)
    outside = ("2001:db8::1", "192.0.2.1")  # addresses of documentation: routed like any other
    for host in (url.hostname or "", *outside):
        try:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((host, url.port or 443))
                address = str(probe.getsockname()[0])
        except OSError:
            continue
        if not ipaddress.ip_address(address).is_loopback:
            return address
    return "127.0.0.1"
