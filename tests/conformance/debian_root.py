"""A Debian root folder with what the tests' containers call: the layer below nearly all images."""

from __future__ import annotations

import io
import tarfile

from tests.conformance.upstream import CACHE, run_tool

ROOT = CACHE / "debian"
PACKAGES = (
    *("apache2", "bash-static", "bind9-dnsutils", "busybox-static", "ca-certificates", "curl", "etcd-server"),
    *("iperf", "iproute2", "iputils-ping", "netcat-openbsd", "nginx-light", "procps", "stress", "wget"),
)
"""Name lookups, transfers, web servers, etcd, load."""
_LEFT_OUT = (
    *("./usr/share/doc/", "./usr/share/man/", "./usr/share/locale/"),
    *("./var/cache/apt/", "./var/lib/apt/", "./dev/"),
)


def make() -> None:
    """Install the packages into the folder, if they are not there."""
    if not (ROOT / "usr/bin/stress").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        run_tool(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", str(ROOT)], CACHE)


def layer() -> bytes:
    """Return the folder as a layer, without what no test reads."""

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if entry.name.startswith(_LEFT_OUT) else entry

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(ROOT, ".", filter=wanted)
    return buffer.getvalue()
