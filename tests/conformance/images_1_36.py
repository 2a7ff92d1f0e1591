"""The images that upstream's v1.36 names."""

from __future__ import annotations

from tests.conformance import debian_root, images_csi
from tests.conformance.image_parts import PAUSE, ImageSources, nginx
from tests.conformance.oci import INDEX, File, Layout, as_json, layer, read

_TESTS = "registry.k8s.io/e2e-test-images"
_USERS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    b"user-defined-in-image:x:1000:1000::/home:/bin/sh\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\n"
    b"group-defined-in-image:x:50000:user-defined-in-image\n",
}
_RELEASE = b'NAME="Alpine Linux"\nID=alpine\n'
"""Contents of the file that the test of image volumes reads."""


def add_all(made: Layout, parts: ImageSources) -> None:
    debian, busybox = parts.debian, [parts.busybox, _shell()]
    users = {name: File(content) for name, content in _USERS.items()}
    # A probe of the tests calls netstat.
    agnhost = parts.agnhost({**users, **_registry(busybox), "usr/bin/netstat": File(link="/bin/busybox")})
    for name in ("agnhost:2.63.0", "agnhost:2.55"):
        made.add(f"{_TESTS}/{name}", agnhost, ["/agnhost"], ["pause"])
    for name in (f"{_TESTS}/busybox:1.37.0-1", f"{_TESTS}/busybox:1.36.1-1", "docker.io/library/busybox:latest"):
        made.add(name, busybox, (), ["sh"])
    for name in ("nginx:1.27-0", "nginx:1.15-4"):
        newer = [layer({"usr/share/nginx/newer": File()})] if "1.27" in name else []
        made.add(f"{_TESTS}/{name}", [debian, nginx(), *newer], (), ["nginx", "-g", "daemon off;"])
    made.add("docker.io/library/nginx:latest", [debian, nginx()], (), ["nginx", "-g", "daemon off;"])
    made.add(f"{_TESTS}/glibc-dns-testing:2.0.0", [debian], (), ["sh"])
    made.add(f"{_TESTS}/ipc-utils:1.4", [debian], (), ["sh"])
    made.add("registry.k8s.io/build-image/distroless-iptables:v0.9.3", [debian], (), ["sh"])
    made.add(f"{_TESTS}/perl:5.26", [debian], (), ["perl"])
    for animal in ("kitten", "nautilus"):
        layers = [*agnhost, parts.animal(animal), layer({"etc/os-release": File(_RELEASE)})]
        made.add(f"{_TESTS}/{animal}:1.8", layers, ["/agnhost"], ["test-webserver"])
    setuid = layer({"usr/local/bin/nnp": parts.program("nnp", 0o6755)})
    made.add(f"{_TESTS}/nonewprivs:1.4", [debian, setuid], (), ["nnp"])
    made.add(f"{_TESTS}/nonroot:1.5", busybox, (), ["sh"], user="1234")
    made.add("registry.k8s.io/pause:3.10.2", busybox, PAUSE, user="65535:65535")
    etcd = layer({"usr/local/bin/etcd": File(link="/usr/bin/etcd")})
    made.add("registry.k8s.io/etcd:3.6.8-0", [debian, etcd], (), ["etcd"])
    if parts.has("sample-apiserver"):
        extension = layer({"sample-apiserver": parts.program("sample-apiserver")})
        made.add(f"{_TESTS}/sample-apiserver:1.29.2", [debian, extension], ["/sample-apiserver"])
    if parts.has("regression-issue-74839"):
        server = layer({"regression-issue-74839": parts.program("regression-issue-74839")})
        made.add(f"{_TESTS}/regression-issue-74839:1.5", [debian, server], ["/regression-issue-74839"])
    if parts.has("resource-consumer"):
        names = {"consumer": "resource-consumer", "consume-cpu/consume-cpu": "consume-cpu"}
        programs = layer({path: parts.program(name) for path, name in names.items()})
        made.add(f"{_TESTS}/resource-consumer:1.14", [debian, programs], ["/consumer"])
    images_csi.add_all(made, parts)


def _shell() -> bytes:
    """Return a layer with another `sh`, first on PATH: Debian's busybox does not hand on variables with names such as `a.b`.

    What asks for /bin/sh still gets busybox, whose words a test expects.
    """
    return layer({"usr/bin/sh": read(debian_root.ROOT / "usr/bin/bash-static", 0o755)})


def _registry(busybox: list[bytes]) -> dict[str, File]:
    """Return the files of the registry that agnhost serves: one image, `pause:testing`, as an index of one platform."""
    kept = Layout()
    kept.add("pause:testing", busybox, PAUSE, user="65535:65535")
    (image,) = kept.manifests
    platform = {"architecture": "amd64", "os": "linux"}
    of_platform = {name: image[name] for name in ("mediaType", "digest", "size")} | {"platform": platform}
    index = as_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [of_platform]})
    tag = kept.blob(index, INDEX)["digest"]
    manifests = {tag.removeprefix("sha256:"), image["digest"].removeprefix("sha256:")}
    folder = "var/registry/pause"
    files = {
        f"{folder}/{'manifests' if digest in manifests else 'blobs'}/sha256/{digest[:2]}/{digest}/data": File(content)
        for digest, content in kept.blobs.items()
    }
    return {f"{folder}/manifests/testing": File(f"{tag}\n".encode()), **files}
