"""Container images made from the host's static busybox, since no registry can be reached from tests.

`archive()` writes an OCI image layout as a tar, which `ctr images import` and `wherry image load` read.
The same bytes give the same digests on every run: times and owners are fixed.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
BUSYBOX_IMAGE = "docker.io/library/busybox:test"
PAUSE_IMAGE = "registry.k8s.io/pause:3.6"  # the sandbox image of containerd 1.6's default configuration

# Enough of busybox for every test here; each becomes a link to /bin/busybox.
_APPLETS = (
    "sh cat chmod chown cp cut date dd df dmesg echo env expr false find grep head hostname httpd id ifconfig ip kill "
    "killall less ln ls md5sum mkdir mkfifo mknod mount mv nc nslookup od ping printenv printf ps pwd readlink reset "
    "rm route sed seq sha256sum sleep sort stat stty tail tar tee telnet test timeout top touch tr true tty umount "
    "uname uniq unlink usleep vi wc wget which whoami xargs yes"
).split()

# The sandbox's process: it waits for TERM and reaps what a shared process namespace leaves to it.
_PAUSE = ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"]


@dataclass(frozen=True, slots=True)
class Image:
    """Content and command of an image."""

    name: str
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ("sh",)
    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/bin:/sbin"})
    user: str = ""
    working_dir: str = ""
    exposed_ports: Sequence[str] = ()
    stop_signal: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)  # path without a leading slash -> content
    programs: Mapping[str, bytes] = field(default_factory=dict)  # likewise, of mode 0755
    labels: Mapping[str, str] = field(default_factory=dict)
    compression: int = 1  # another level gives the same image ID with another manifest


def busybox(name: str = BUSYBOX_IMAGE) -> Image:
    """Describe a general image: a shell and the usual tools."""
    return Image(name)


def busybox_of(registry: str, name: str) -> Image:
    """Describe the same with an ID of its own: who may use an image is recorded by ID, whatever names it has."""
    return Image(f"{registry}/{name}", labels={"registry": registry})


def pause(name: str = PAUSE_IMAGE) -> Image:
    """Describe the sandbox image."""
    return Image(name, entrypoint=_PAUSE, command=())


def archive(path: Path, images: Iterable[Image]) -> Path:
    """Write the images as one OCI layout tar to path and return it."""
    blobs: dict[str, bytes] = {}
    manifests = [_manifest(image, blobs) for image in images]
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
    with tarfile.open(path, "w") as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json(index))
        for digest, content in sorted(blobs.items()):
            _add(tar, f"blobs/sha256/{digest}", content)
    return path


def _manifest(image: Image, blobs: dict[str, bytes]) -> dict[str, object]:
    layer = _layer(image)
    packed = gzip.compress(layer, compresslevel=image.compression, mtime=0)
    settings: dict[str, object] = {
        "Env": [f"{key}={value}" for key, value in image.env.items()],
        "Entrypoint": list(image.entrypoint) or None,
        "Cmd": list(image.command) or None,
        "User": image.user,
        "WorkingDir": image.working_dir,
        "ExposedPorts": {port: {} for port in image.exposed_ports} or None,
        "StopSignal": image.stop_signal or None,
        "Labels": dict(image.labels) or None,
    }
    configuration = _json(
        {
            "created": "2026-01-01T00:00:00Z",
            "architecture": _architecture(),
            "os": "linux",
            "config": {key: value for key, value in settings.items() if value},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
            "history": [{"created": "2026-01-01T00:00:00Z", "created_by": "busybox and links to it"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _blob(blobs, configuration, "application/vnd.oci.image.config.v1+json"),
            "layers": [_blob(blobs, packed, "application/vnd.oci.image.layer.v1.tar+gzip")],
        }
    )
    return {
        **_blob(blobs, manifest, "application/vnd.oci.image.manifest.v1+json"),
        "platform": {"architecture": _architecture(), "os": "linux"},
        "annotations": {"io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": image.name},
    }


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "etc", "home", "proc", "root", "sbin", "sys", "tmp", "usr", "usr/bin", "var", "www"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for applet in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, "busybox", 0o777
            tar.addfile(entry)
        standard = {
            "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n",
            "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
        }
        for path, content in {**standard, **image.files}.items():
            _add(tar, path, content)
        for path, content in image.programs.items():
            _add(tar, path, content, 0o755)
    return buffer.getvalue()


def _blob(blobs: dict[str, bytes], content: bytes, media_type: str) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    blobs[digest] = content
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _architecture() -> str:
    import platform

    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
