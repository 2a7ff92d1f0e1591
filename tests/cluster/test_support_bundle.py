"""A bug report's archive: its content on a running machine, without secrets of the machine or its objects."""

from __future__ import annotations

import json
import stat
import tarfile
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.pods import apply, container, pod, wait_running

SECRETS = ("in-a-secret-6021", "in-a-config-map-6021", "in-a-variable-6021")


def test_a_bundle_has_logs_and_lists_and_no_secrets(shared: Cluster, ns: str, tmp_path: Path) -> None:
    shared.kubectl("create", "secret", "generic", "s", "-n", ns, f"--from-literal=a={SECRETS[0]}")
    shared.kubectl("create", "configmap", "c", "-n", ns, f"--from-literal=a={SECRETS[1]}")
    apply(shared, ns, pod("with-variable", {**container(), "env": [{"name": "A", "value": SECRETS[2]}]}))
    wait_running(shared, ns, "with-variable")
    path = tmp_path / "bundle.tar.gz"
    assert shared.wherry("support-bundle", str(path)).stdout == f"{path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        files = {member.name.partition("/")[2]: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    whole = b"".join(files.values())
    keys = [file.read_text() for file in (shared.prefix / "var/lib/wherry/pki").rglob("*.key")]
    hidden = [*SECRETS, *(line for key in keys for line in key.splitlines() if len(line) == 64)]
    assert len(hidden) > len(SECRETS) and not [text for text in hidden if text.encode() in whole]
    names = [p["metadata"]["name"] for p in json.loads(files["cluster/pods.json"])["items"]]
    assert "with-variable" in names and b"KUBE-SERVICES" in files["machine/iptables.txt"]
    assert all(files[f"logs/{daemon}.log"] for daemon in ("control", "agent", "netproxy", "containerd"))
    assert json.loads(files["status.json"])["healthy"] is True
    assert b"not collected" not in files["version.yaml"] + files["options.yaml"] + files["check.yaml"]
    lists = {name: text for name, text in files.items() if name.startswith("cluster/") and name.endswith(".json")}
    assert len(lists) > 40 and not [name for name, text in lists.items() if text.startswith(b"not collected")]
    assert b"subject: kube-apiserver" in files["certificates.yaml"] and b"builtIn: true" in files["cluster/addons.yaml"]
    assert "exists: remove it" in shared.wherry("support-bundle", str(path), check=False).stderr
