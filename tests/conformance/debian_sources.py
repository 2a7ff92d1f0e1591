"""Upstream's v1.20.2: its end-to-end tests and daemons, built from the sources that Debian 12 carries with all that they need.

They are the newest that a package index has. What they ask has grown since, and little of it has changed:
`known.toml` says what. Everything is kept in .cache/conformance, so only the first run builds (a quarter of an hour).
"""

from __future__ import annotations

import hashlib
import os
import re
import urllib.request
from pathlib import Path

from tests.conformance.upstream import CACHE, Upstream
from tests.conformance.upstream import run_tool as _run

SOURCE = CACHE / "go/src/k8s.io/kubernetes"
BINARIES = CACHE / "bin"
ARCHIVE = "kubernetes_1.20.5+really1.20.2.orig.tar.gz"
SHA256 = "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc"
VERSION = "v1.20.2"
UPSTREAM = Upstream(VERSION, BINARIES, SOURCE, CACHE)
DAEMONS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
_VERSION = {"gitVersion": VERSION, "gitMajor": "1", "gitMinor": "20", "gitTreeState": "clean"}
_GO = {
    "GO111MODULE": "off",  # the sources carry what they need, in a list that newer tools want rewritten
    "GOPATH": str(CACHE / "go"),
    "GOCACHE": str(CACHE / "go-cache"),
    "CGO_ENABLED": "0",
    "PATH": f"/usr/lib/go-1.19/bin:{os.environ['PATH']}",
}
_DATA = ("test/conformance/testdata/...", "test/e2e/testing-manifests/...", "test/images/...", "test/fixtures/...")
_TARGETS = {
    "ginkgo": "./vendor/github.com/onsi/ginkgo/ginkgo",
    "agnhost": "./test/images/agnhost",
    "nnp": "./test/images/nonewprivs",
    "sample-apiserver": "./vendor/k8s.io/sample-apiserver",
}


def build() -> None:
    """Fetch, unpack and compile what is not there yet; raises CalledProcessError with what the tool printed."""
    BINARIES.mkdir(parents=True, exist_ok=True)
    if not SOURCE.exists():
        _unpack(_fetch())
    if not (BINARIES / "e2e.test").exists():
        _go("build", "-o", str(BINARIES / "go-bindata"), "./vendor/github.com/go-bindata/go-bindata/go-bindata")
        made = "test/e2e/generated/bindata.go"
        _run([str(BINARIES / "go-bindata"), "-nometadata", "-o", made, "-pkg", "generated", *_DATA], SOURCE)
        for name, package in _TARGETS.items():
            _go("build", "-o", str(BINARIES / name), package)
        _go("test", "-c", "-o", str(BINARIES / "e2e.test"), "./test/e2e")


def build_daemons() -> None:
    """Compile upstream's daemons; raises as `build`, which must have been called."""
    if (BINARIES / DAEMONS[-1]).exists():
        return
    if not (BINARIES / DAEMONS[0]).exists():
        _generate()
    flags = " ".join(f"-X k8s.io/kubernetes/vendor/k8s.io/component-base/version.{k}={v}" for k, v in _VERSION.items())
    for name in DAEMONS:
        _go("build", "-ldflags", flags, "-o", str(BINARIES / name), f"./cmd/{name}")


def _generate() -> None:
    """Make the one generated file that is not in the archive: the server's OpenAPI document."""
    generator = BINARIES / "openapi-gen"
    _go("build", "-o", str(generator), "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
    tagged = r"grep -RlE '^// [+]k8s:openapi-gen=true' --include=*.go vendor/k8s.io pkg | xargs -n1 dirname | sort -u"
    packages = []
    for folder in _run(["bash", "-c", tagged], SOURCE).split():
        if not any(part in folder for part in ("code-generator", "sample", "_examples", "kube-openapi")):
            packages.append(
                folder.removeprefix("vendor/") if folder.startswith("vendor/") else f"k8s.io/kubernetes/{folder}"
            )
    machinery = ("util/intstr", "api/resource", "runtime", "version", "apis/meta/v1")
    packages += [f"k8s.io/apimachinery/pkg/{name}" for name in machinery]
    made = (
        "-O",
        "zz_generated.openapi",
        "-p",
        "k8s.io/kubernetes/pkg/generated/openapi",
        "--output-base",
        str(CACHE / "go/src"),
    )
    license = ("-h", "hack/boilerplate/boilerplate.generatego.txt", "-r", str(CACHE / "openapi.violations"))
    _run([str(generator), *made, *license, "-i", ",".join(dict.fromkeys(packages))], SOURCE, _GO)


def _fetch() -> Path:
    """Bring the sources of the package kubernetes-client from where apt finds that package."""
    path = CACHE / ARCHIVE
    if not path.exists():
        printed = _run(["apt-get", "download", "--print-uris", "kubernetes-client"], CACHE)
        found = re.search(r"'(\S+/)kubernetes-client_[^/']+\.deb'", printed)
        assert found, f"apt knows no package kubernetes-client: {printed}"
        part = path.with_suffix(".part")
        with urllib.request.urlopen(found[1] + ARCHIVE.replace("+", "%2b")) as answer, part.open("wb") as file:
            while chunk := answer.read(1 << 20):
                file.write(chunk)
        part.rename(path)
    found_sum = hashlib.sha256(path.read_bytes()).hexdigest()
    assert found_sum == SHA256, f"{path} is not the archive that is known here: SHA-256 {found_sum}"
    return path


def _unpack(archive: Path) -> None:
    fresh = SOURCE.with_name("unpacking")
    fresh.mkdir(parents=True, exist_ok=True)
    _run(["tar", "xzf", str(archive), "-C", str(fresh), "--strip-components=1"], CACHE)
    fresh.rename(SOURCE)


def _go(*arguments: str) -> None:
    _run(["go", *arguments], SOURCE, _GO)
