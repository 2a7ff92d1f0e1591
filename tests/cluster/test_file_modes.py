"""Files of a whole installation that accounts other than root can read, with pods running."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.kube import wait_phase, web
from tests.support.pods import apply, container, pod
from wherry import file_modes
from wherry.settings import load


def files(prefix: Path) -> Iterator[Path]:
    """Yield every file, socket and pipe of the installation; not what containers bring along."""
    for folder, below, names in os.walk(prefix):
        if Path(folder).name == "rootfs" or "snapshotter" in folder:
            below.clear()
            continue
        if Path(folder) == prefix:
            below[:] = [name for name in below if name in ("etc", "run", "var")]
            continue
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                yield path


def test_nothing_is_readable_by_everybody_without_a_reason(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    shared.kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", ns)
    settings = load(str(shared.prefix))
    assert settings is not None
    found = file_modes.world_readable(settings.layout, files(shared.prefix))
    assert [str(path.relative_to(shared.prefix)) for path in found] == []


def test_folders_keep_to_their_modes_and_a_wide_one_is_closed_by_up(shared: Cluster) -> None:
    settings = load(str(shared.prefix))
    assert settings is not None
    control = settings.layout.state / "control"
    control.chmod(0o755)
    shared.wherry("up")
    for folder in file_modes.folders(settings):
        assert not stat.S_IMODE(folder.path.stat().st_mode) & ~folder.mode, folder


def test_configuration_files_are_for_root_alone(shared: Cluster) -> None:
    layout = shared.prefix / "etc"
    for name in ("wherry/kubelet.yaml", "wherry/kube-proxy.yaml", "wherry/containerd.toml"):
        assert stat.S_IMODE((layout / name).stat().st_mode) == 0o600, name
    (network,) = (layout / "cni/net.d").glob("*.conflist")
    assert stat.S_IMODE(network.stat().st_mode) == 0o600


def test_daemons_have_masks_of_their_own_whatever_shell_started_them(shared: Cluster, ns: str) -> None:
    root = str(Path(__file__).resolve().parents[2])
    for command in ("down", "up"):
        line = f'umask 077; exec "$0" -m wherry.main {command} --prefix "$1"'
        argv = ("sh", "-c", line, sys.executable, str(shared.prefix))
        shared.host.run(*argv, env={"PYTHONPATH": root}, timeout=180)
    masks = {
        daemon: next(
            line.split()[1]
            for line in Path(f"/proc/{shared.pid(daemon)}/status").read_text().splitlines()
            if line.startswith("Umask")
        )
        for daemon in ("containerd", "control", "agent", "netproxy")
    }
    # What containerd and the agent make for containers must be readable by users other than root in them.
    assert masks == {"containerd": "0022", "control": "0077", "agent": "0022", "netproxy": "0077"}
    shared.kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", ns)
    script = "cat /etc/resolv.conf /etc/hosts /c/below/a > /dev/null && echo well"
    reader = pod(
        "reader",
        container(script, volumeMounts=[{"name": "c", "mountPath": "/c"}]),
        securityContext={"runAsUser": 1000},
        restartPolicy="Never",
        volumes=[{"name": "c", "configMap": {"name": "c", "items": [{"key": "a", "path": "below/a"}]}}],
    )
    apply(shared, ns, reader)
    wait_phase(shared, ns, "reader", "Succeeded")
    assert shared.kubectl("logs", "reader", "-n", ns).stdout.strip() == "well"
