"""The images that upstream's tests name, made of Debian packages and of programs from the same sources as the tests.

One layer with a Debian root serves nearly all of them; on top come a test program, a web server's configuration or a page.
`archive` writes them as one OCI layout that `wherry image load` reads.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.upstream import BINARIES, SOURCE, open_root

_LAYER = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_TESTS = SOURCE / "test/images"
_PAUSE = ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"]
_APACHE = b"""ServerRoot /etc/apache2
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
Listen 80
ServerName localhost
PidFile /tmp/httpd.pid
DocumentRoot /usr/local/apache2/htdocs
DirectoryIndex index.html
ErrorLog /dev/stderr
<Directory />
Require all granted
</Directory>
"""
_NGINX = b"events {}\nhttp { server { listen 80; root /usr/share/nginx/html; } }\n"


@dataclass(frozen=True, slots=True)
class File:
    """A file of a layer, or a link, or with a name that ends in a slash a folder."""

    content: bytes = b""
    mode: int = 0o644
    link: str = ""


@dataclass(slots=True)
class _Layout:
    """What goes into the archive: blobs by digest, and the images' manifests."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: list[dict[str, Any]] = field(default_factory=list)

    def blob(self, content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def add(
        self, name: str, layers: Sequence[bytes], run: Sequence[str] = (), arguments: Sequence[str] = (), user: str = ""
    ) -> None:
        """Add an image; `run` is its entry point and `arguments` its command."""
        settings = {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            **({"Entrypoint": list(run)} if run else {}),
            **({"Cmd": list(arguments)} if arguments else {}),
            **({"User": user} if user else {}),
        }
        sums = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        config = {
            "created": "2026-01-01T00:00:00Z",
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": sums},
            "history": [{"created": "2026-01-01T00:00:00Z", "created_by": name} for _ in layers],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self.blob(_json(config), _CONFIG),
            "layers": [self.blob(layer, _LAYER) for layer in layers],
        }
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
        self.manifests.append({**self.blob(_json(manifest), _MANIFEST), "annotations": names})


def archive(path: Path) -> Path:
    """Write all images to `path` and return it."""
    made = _Layout()
    debian, busybox = _debian(), _busybox()
    agnhost = [debian, _agnhost()]
    for registry in ("k8s.gcr.io/e2e-test-images", "gcr.io/k8s-authenticated-test"):
        for version in ("2.21", "2.6"):
            made.add(f"{registry}/agnhost:{version}", agnhost, ["/agnhost"], ["pause"])
    made.add("docker.io/library/busybox:1.29", [busybox], (), ["sh"])
    apache, newer = _apache(), _layer({"usr/local/apache2/newer": File()})
    made.add("docker.io/library/httpd:2.4.38-alpine", [debian, apache], (), ["httpd-foreground"])
    made.add("docker.io/library/httpd:2.4.39-alpine", [debian, apache, newer], (), ["httpd-foreground"])
    nginx = _layer({"etc/nginx/nginx.conf": File(_NGINX)})
    for version in ("1.14", "1.15"):
        made.add(f"docker.io/library/nginx:{version}-alpine", [debian, nginx], (), ["nginx", "-g", "daemon off;"])
    tests = "gcr.io/kubernetes-e2e-test-images"
    made.add(f"{tests}/jessie-dnsutils:1.0", [debian], (), ["sh"])
    for animal in ("kitten", "nautilus"):
        pages = {name: _read(_TESTS / animal / "html" / name) for name in (f"{animal}.jpg", "data.json")}
        made.add(f"{tests}/{animal}:1.0", [*agnhost, _layer(pages)], ["/agnhost"], ["test-webserver"])
    setuid = _layer({"usr/local/bin/nnp": _read(BINARIES / "nnp", 0o4755)})
    made.add(f"{tests}/nonewprivs:1.0", [debian, setuid], (), ["nnp"])
    made.add(f"{tests}/nonroot:1.0", [busybox], (), ["id", "-u"], user="1234")
    extension = _layer({"sample-apiserver": _read(BINARIES / "sample-apiserver", 0o755)})
    made.add(f"{tests}/sample-apiserver:1.17", [debian, extension], ["/sample-apiserver"])
    etcd = _layer({"usr/local/bin/etcd": File(link="/usr/bin/etcd")})
    made.add("k8s.gcr.io/etcd:3.4.13-0", [debian, etcd], (), ["etcd"])
    made.add("docker.io/library/perl:5.26", [debian], (), ["perl"])
    made.add("k8s.gcr.io/pause:3.2", [busybox], _PAUSE)
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", File(_json({"imageLayoutVersion": "1.0.0"})))
        _add(tar, "index.json", File(_json({"schemaVersion": 2, "manifests": made.manifests})))
        for digest, content in made.blobs.items():
            _add(tar, f"blobs/sha256/{digest}", File(content))
    return path


def _debian() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        open_root(tar)
    return buffer.getvalue()


def _agnhost() -> bytes:
    keys = {name: _read(_TESTS / "agnhost/porter" / name) for name in ("localhost.crt", "localhost.key")}
    program = {"agnhost": _read(BINARIES / "agnhost", 0o755), "agnhost-2": File(link="agnhost")}
    return _layer({**program, **keys, "uploads/.keep": File()})


def _busybox() -> bytes:
    applets = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    people = {
        "etc/passwd": File(b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n"),
        "etc/group": File(b"root:x:0:\nnogroup:x:65534:\n"),
    }
    folders = {f"{folder}/": File(mode=0o755) for folder in ("home", "root", "usr", "usr/bin", "var")}
    folders["tmp/"] = File(mode=0o1777)
    links = {f"bin/{name}": File(link="busybox") for name in applets if name != "busybox"}
    return _layer({"bin/busybox": _read(Path("/bin/busybox"), 0o755), **links, **people, **folders})


def _apache() -> bytes:
    start = b"#!/bin/sh\nexec apache2 -f /usr/local/apache2/conf/httpd.conf -DFOREGROUND\n"
    return _layer(
        {
            "usr/local/apache2/htdocs/index.html": File(b"<html><body><h1>It works!</h1></body></html>\n"),
            "usr/local/apache2/conf/httpd.conf": File(_APACHE),
            "usr/local/bin/httpd-foreground": File(start, 0o755),
        }
    )


def _read(path: Path, mode: int = 0o644) -> File:
    return File(path.read_bytes(), mode)


def _layer(files: dict[str, File]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, file in files.items():
            _add(tar, name, file)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, file: File) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = file.mode
    if file.link:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, file.link, 0o777
        return tar.addfile(entry)
    if name.endswith("/"):
        entry.type = tarfile.DIRTYPE
        return tar.addfile(entry)
    entry.size = len(file.content)
    return tar.addfile(entry, io.BytesIO(file.content))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
