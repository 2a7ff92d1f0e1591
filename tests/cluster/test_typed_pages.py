"""Pages of docs/ and the README, typed on one cluster: every line of their blocks, but for those with a reason below."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from kube import pki
from tests.support import bundle_files, images
from tests.support.cluster import Cluster
from tests.support.registry import Registry, registry
from tests.support.typed_pages import ROOT, Reader, Reading, nginx

pytestmark = pytest.mark.long
INSTALLS = "tests/host/test_package_deb.py and scripts/test itself install packages"
SECOND_MACHINE = "tests/cluster/test_join.py"
MEMBERS = "tests/cluster/test_control_planes.py"
NETWORK = "tests/cluster/test_other_network.py"
INTERNET = "needs the Internet"
RESET = "tests/cluster/test_wherry.py"
INVALID_POD = (
    '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, '
    '"spec": {"restartPolicy": "Maybe", "containers": [{"name": "c"}]}}'
)
DIGEST = "09d6d45e..."


def newest(cluster: Cluster) -> str:
    """Return the name of the newest snapshot."""
    return max((cluster.prefix / "var/lib/wherry/snapshots").glob("*.db"), key=lambda path: path.stat().st_mtime).name


def digest(cluster: Cluster) -> str:
    """Return the SHA-256 of a bundle's list, which `wherry bundle create` has printed."""
    return (cluster.prefix / "var/lib/digest").read_text().strip()


def token(cluster: Cluster) -> str:
    """Return the ID of a token of the cluster."""
    return re.findall(r"^([a-z0-9]{6})\b", cluster.wherry("token", "list").stdout, re.M)[-1]


PAGES: dict[str, Reading] = {
    "docs/private-registries.md": Reading(
        left_out={"wherry crictl": "Debian 12 has no crictl"},
        values={"10.0.0.1:5000": "127.0.0.1:5000"},
        before=("kubectl run app --image=registry.example.com:5000/team/app:1",),
        after=("kubectl delete pod app", "rm /etc/wherry/config.yaml"),
    ),
    "README.md": Reading(
        left_out={"sudo scripts/": INSTALLS},
        after=("kubectl delete service,deployment web",),
    ),
    "docs/start.md": Reading(
        left_out={"sudo scripts/up": INSTALLS},
        varies=("sudo wherry status", "kubectl get nodes", "kubectl get pods"),
        before=("cp nginx.tar web.tar",),
        after=(
            "kubectl delete service,deployment web",
            "kubectl delete service public",
            "kubectl delete deployment mine",
        ),
    ),
    "docs/airgap.md": Reading(
        left_out={
            "wherry bundle load": "tests/host/test_bundle_load.py",
            "python3 -m pip download": INTERNET,
            "install -D": "tests/host/test_bundle_load.py",
        },
        values={
            DIGEST: digest,
            "debs/*.deb web.tar": "debs/*.deb web.tar | tee /dev/stderr | grep -o '[0-9a-f]\\{64\\}$' >/var/lib/digest",
            "airgap.tar debs/": "wheels.tar debs/",
            "nginx:1.27": "docker.io/library/nginx:1.27",
        },
        before=("wherry image load redis.tar", "mkdir wheels && cp example-1.0-py3-none-any.whl wheels/"),
    ),
    "docs/monitoring.md": Reading(
        left_out={
            "jaeger": "tests/contract/test_tracing.py",
            "sudo wherry up --tracing": "tests/contract/test_tracing.py",
        },
        after=("kubectl delete pod web --now",),
    ),
    "docs/addons.md": Reading(
        left_out={"rm ": "typed at the end: the lines after it show the addon"},
        varies=("wherry addons list",),
        before=("kubectl create configmap a --dry-run=client -o yaml >dashboard.yaml",),
        after=("rm /var/lib/wherry/addons/dashboard.yaml",),
    ),
    "docs/api.md": Reading(
        left_out={"python -m control": "tests/contract/test_daemons.py"},
        before=(f"echo '{INVALID_POD}' >pod.yaml",),
    ),
    "docs/install.md": Reading(
        left_out={
            "scripts/": INSTALLS,
            "wherry up --proxy upstream": "tests/cluster/test_other_proxies.py",
            "kubectl drain": SECOND_MACHINE,
            "kubectl delete node": SECOND_MACHINE,
            "wherry reset": RESET,
            "rm -rf": RESET,
        },
        values={"abcdef": token},
    ),
    "docs/backup.md": Reading(values={"FILE": newest}),
    "docs/upgrade.md": Reading(left_out={"scripts/install": "tests/cluster/test_upgrade.py"}),
    "docs/uninstall.md": Reading(
        left_out=dict.fromkeys(("kubectl drain", "kubectl delete node", "wherry reset --yes"), SECOND_MACHINE),
        values={"wherry reset": "wherry reset --yes"},
        before=("mkdir -p /mnt/backup",),
    ),
}
"""Pages in their order: the first one names a mirror for images, the last one resets the machine."""


@pytest.fixture(scope="module")
def reader(pages: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    with registry(pages, 5000) as made:
        _push(made, "docker.io/library/nginx:latest")
        authority = pages.prefix / "etc/ssl/registry.pem"
        authority.parent.mkdir(parents=True)
        authority.write_bytes(pki.new_ca("registry", datetime.now(UTC)).cert_pem)
        images.archive(folder / "redis.tar", [nginx("docker.io/library/redis:7.4")])
        cache = pages.prefix / "var/cache/apt/archives"
        cache.mkdir(parents=True)
        bundle_files.package(cache / "example-library_1.0_all.deb", fields="Package: example-library\nVersion: 1.0\n")
        bundle_files.package(folder / "wherry_0.2.0_amd64.deb")
        bundle_files.wheel(folder / "example-1.0-py3-none-any.whl")
        yield Reader(pages, folder)


def _push(made: Registry, name: str) -> None:
    """Push an image so that a mirror of its registry has it."""
    made.push(nginx(f"{made.host}/{name.partition('/')[2]}"))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_can_be_typed(reader: Reader, page: str) -> None:
    assert reader.read(ROOT / page, PAGES[page])
