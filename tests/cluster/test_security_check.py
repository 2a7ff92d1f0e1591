"""`wherry check --security` on a real cluster: findings for a new cluster and for a weakened one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster
from tests.support.kube import web


def look(on: Cluster) -> tuple[int, dict[str, Any]]:
    """Return the exit status and check -> result."""
    done = on.wherry("check", "--security", "-o", "json", check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, {each["id"]: each for each in json.loads(done.stdout)["checks"]}


def failed(found: dict[str, Any]) -> set[str]:
    return {number for number, each in found.items() if each["result"] == "FAIL"}


def test_a_new_cluster_fails_nothing(shared: Cluster) -> None:
    status, found = look(shared)
    assert failed(found) == set(), [found[each] for each in failed(found)]
    assert status == 0
    for number in ("1.1.13", "1.2.1", "1.2.15", "1.2.29", "4.1.9", "4.2.1", "4.2.12", "4.3.1", "5.1.2", "5.3.1"):
        assert found[number]["result"] == "PASS", found[number]


def test_what_was_weakened_is_found_and_the_fix_mends_it(shared: Cluster, ns: str) -> None:
    before = failed(look(shared)[1])
    web(shared, ns, 1)
    file = shared.prefix / "etc/wherry/kubelet.yaml"
    file.chmod(0o644)
    shared.kubectl("create", "clusterrole", "reads-all", "--verb=get,list", "--resource=secrets,nodes/proxy")
    shared.kubectl("create", "clusterrolebinding", "reads-all", "--clusterrole=reads-all", f"--serviceaccount={ns}:web")
    try:
        status, found = look(shared)
        assert status == 1 and failed(found) - before == {"4.1.9"}
        assert found["4.1.9"]["fix"] == f"`chmod 600 {file}`"
        for number in ("5.1.2", "5.1.10"):
            assert found[number]["result"] == "WARN" and f"ServiceAccount {ns}/web" in found[number]["reason"]
        assert f"{ns}/web" in found["5.2.6"]["reason"] and ns in found["5.3.2"]["reason"]
        shared.host.run("sh", "-c", found["4.1.9"]["fix"].strip("`"))
    finally:
        shared.kubectl("delete", "clusterrole,clusterrolebinding", "reads-all")
        file.chmod(0o600)
    assert failed(look(shared)[1]) == before


def test_weak_settings_in_force_are_seen_from_outside(shared: Cluster) -> None:
    drop_in = shared.prefix / "etc/wherry/kubelet.conf.d/weak.conf"
    drop_in.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "tlsCipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA]\nauthentication: {anonymous: {enabled: true}}\n"
    )
    drop_in.chmod(0o600)
    flags = shared.prefix / "etc/wherry/apiserver.yaml"
    flags.write_text(
        "tls-cipher-suites: TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA\ndisable-admission-plugins: NodeRestriction\n"
    )
    try:
        _restart(shared)
        found = look(shared)[1]
        assert {"1.2.14", "1.2.29", "4.2.1", "4.2.12"} <= failed(found)
        assert "ECDHE-ECDSA-AES256-SHA" in found["1.2.29"]["reason"]
        assert "ECDHE-ECDSA-AES128-SHA" in found["4.2.12"]["reason"]
    finally:
        drop_in.unlink()
        flags.unlink()
        _restart(shared)
    assert failed(look(shared)[1]) == set()


def test_text_fits_80_columns(shared: Cluster) -> None:
    done = shared.wherry("check", "--security", check=False)
    shown = done.stdout.splitlines()
    assert len(shown) > 130 and shown[-1].startswith(tuple("0123456789")) and " PASS, " in shown[-1]
    assert [line for line in shown if len(line) > 80 and str(shared.prefix) not in line] == []


def test_somebody_without_root_gets_one_sentence(shared: Cluster) -> None:
    root = str(Path(__file__).resolve().parents[2])
    code = "import os, sys; os.geteuid = lambda: 1000; from wherry.main import main; main()"
    argv = ["check", "--security", "--prefix", str(shared.prefix)]
    done = shared.host.run("env", f"PYTHONPATH={root}", sys.executable, "-c", code, *argv, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "wherry: this needs root: run it with sudo\n")


def _restart(on: Cluster) -> None:
    on.wherry("down")
    on.wherry("up")
