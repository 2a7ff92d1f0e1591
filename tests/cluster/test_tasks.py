"""The pages of docs/tasks/, typed as they stand; test_tasks_several_nodes.py has those for several nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import images
from tests.support.cluster import Cluster
from tests.support.pages import Shell, walk

PAGES = Path(__file__).resolve().parents[2] / "docs" / "tasks"
NAMES = ("docker.io/library/busybox:1.36", "docker.io/library/busybox:1.37")
SEVERAL_NODES = ("drain", "daemonset")
ONE_NODE = sorted(p.stem for p in PAGES.glob("*.md") if p.stem not in ("README", *SEVERAL_NODES))


def follow(page: str, on: Cluster, ns: str, folder: Path) -> None:
    """Do what a page says in a namespace, as somebody whose kubeconfig names it."""
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(on.kubeconfig.read_text())
    on.host.run("kubectl", f"--kubeconfig={kubeconfig}", "config", "set-context", "--current", f"--namespace={ns}")
    shell = Shell(on.host, folder, KUBECONFIG=str(kubeconfig), KUBECACHEDIR=str(on.prefix / "kube-cache"))
    try:
        assert walk(PAGES / f"{page}.md", shell, folder) > 3
    finally:
        shell.close()


@pytest.fixture(scope="module")
def one(shared: Cluster) -> Cluster:
    shared.load(*(images.busybox(name) for name in NAMES))
    return shared


@pytest.mark.parametrize("page", ONE_NODE)
def test_a_page_shows_what_comes(one: Cluster, ns: str, tmp_path: Path, page: str) -> None:
    follow(page, one, ns, tmp_path)
