"""The images that upstream's tests name, made of Debian packages and of programs from the same sources as the tests.

One layer with a Debian root serves nearly all of them; on top come a test program, a web server's configuration or a page.
What a version names is in images_1_20.py and images_1_36.py. The names and versions are upstream's, the contents ours.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.conformance import debian_root, images_1_20, images_1_36
from tests.conformance.image_parts import ImageSources
from tests.conformance.oci import File, Layout, layer, read
from tests.conformance.upstream import Upstream


def archive(upstream: Upstream) -> Path:
    """Make the archive of all images, if it is not there, and return its path."""
    path = upstream.kept / "images.tar"
    if not path.exists():
        upstream.kept.mkdir(parents=True, exist_ok=True)
        debian_root.make()
        parts = ImageSources(upstream, debian_root.layer(), _busybox())
        made = Layout()
        (images_1_20 if upstream.minor < 21 else images_1_36).add_all(made, parts)
        part = path.with_suffix(".part")
        made.write(part)
        part.rename(path)
    return path


def _busybox() -> bytes:
    """Make a layer of the first `busybox` on PATH, which must be static."""
    program = shutil.which("busybox")
    assert program, "busybox is missing (Debian: busybox-static)"
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    people = {
        "etc/passwd": File(b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n"),
        "etc/group": File(b"root:x:0:\nnogroup:x:65534:\n"),
    }
    folders = {f"{folder}/": File(mode=0o755) for folder in ("home", "root", "usr", "usr/bin", "var")}
    folders["tmp/"] = File(mode=0o1777)
    links = {f"bin/{name}": File(link="busybox") for name in applets if name != "busybox"}
    return layer({"bin/busybox": read(Path(program), 0o755), **links, **people, **folders})
