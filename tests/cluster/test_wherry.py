"""The wherry command: its output, and the exact effects of down, up and reset."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from pathlib import Path

import yaml

from tests.support import leftovers
from tests.support.cluster import BUSYBOX, NODE, WEB_IMAGE, Cluster, cluster, eventually
from tests.support.kube import container_ids, wait_pods, web


def test_status_shows_every_daemon_and_ends_well(shared: Cluster) -> None:
    shown = shared.wherry("status").stdout
    for daemon in ("containerd", "control", "agent", "netproxy"):
        assert re.search(rf"^{daemon} +{shared.pid(daemon)} +[\d.]+ MiB +[\d a-z]+ +running$", shown, re.M), shown
    assert f"node {NODE}: Ready" in shown
    data = json.loads(shared.wherry("status", "-o", "json").stdout)
    assert data["healthy"] and [node["name"] for node in data["nodes"]] == [NODE]
    assert all(daemon["uptime"] > 0 for daemon in data["daemons"]) and 0 < data["disk"]["free"] < data["disk"]["size"]


def test_check_finds_nothing_wrong_on_a_machine_that_runs(shared: Cluster) -> None:
    shown = shared.wherry("check").stdout
    assert "error" not in shown
    assert re.search(r"ok +the CNI plugins are there", shown)


def test_no_daemon_logs_lines_of_grpcs_about_forks(shared: Cluster) -> None:
    logs = sorted((shared.prefix / "var/log/wherry").glob("*.log"))
    assert "agent.log" in [each.name for each in logs]
    assert [each.name for each in logs if "fork_posix" in each.read_text(errors="replace")] == []


def test_check_names_what_is_in_the_way_with_its_fix(shared: Cluster) -> None:
    taken = shared.host.popen("busybox", "nc", "-l", "-p", "26443")
    try:

        def refused() -> str | None:
            argv = ("up", "--prefix", str(shared.prefix / "other"), "--api-port", "26443")
            done = shared.host.run(
                sys.executable,
                "-m",
                "wherry.main",
                *argv,
                check=False,
                env={"PYTHONPATH": str(Path(__file__).resolve().parents[2]), "COLUMNS": "200"},
            )
            assert done.returncode == 1
            return done.stderr if "26443" in done.stderr else None

        message = eventually(refused, "the taken port is named")
        assert "port 26443, wanted for the API server, is taken" in message
        assert "--api-port" in message
        assert "nothing was started" in message
        assert not (shared.prefix / "other/run").exists()
    finally:
        taken.kill()
        taken.wait()


def test_kubeconfig_is_printed_and_kept_for_root_alone(shared: Cluster) -> None:
    config = yaml.safe_load(shared.wherry("kubeconfig").stdout)
    assert config["clusters"][0]["cluster"]["server"] == "https://172.30.0.2:6443"
    for path in (shared.kubeconfig, shared.prefix / "etc/wherry/agent.kubeconfig"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in (shared.prefix / "var/lib/wherry/pki").glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_images_are_listed_and_a_missing_archive_is_an_error(shared: Cluster) -> None:
    images = {found["name"]: found for found in json.loads(shared.wherry("image", "list", "-o", "json").stdout)}
    assert images.keys() >= {WEB_IMAGE, BUSYBOX}
    assert not [name for name in images if name.startswith("sha256:")]
    assert images[BUSYBOX]["digest"].startswith("sha256:") and images[BUSYBOX]["size"] > 100_000
    heading, *lines = shared.wherry("image", "list").stdout.splitlines()
    assert heading.split() == ["NAME", "SIZE", "DIGEST"] and len(lines) == len(images)
    missing = shared.wherry("image", "load", "/nowhere.tar", check=False)
    assert (missing.returncode, missing.stderr) == (1, "wherry: /nowhere.tar: no such file\n")


def test_an_image_is_saved_removed_and_loaded_again(shared: Cluster, tmp_path: Path) -> None:
    name, archive = "localhost/saved:1", tmp_path / "saved.tar"
    shared.wherry("ctr", "images", "tag", BUSYBOX, name)
    shared.wherry("image", "save", str(archive), name)
    assert shared.wherry("image", "rm", name).stdout == f"removed {name}\n"
    again = shared.wherry("image", "rm", name, check=False)
    assert again.stderr == f"wherry: there is no image {name}: `wherry image list` shows the names\n"
    assert name in shared.wherry("image", "load", str(archive)).stdout
    shared.wherry("image", "rm", name)


def test_versions_of_server_and_runtime_are_shown(shared: Cluster) -> None:
    shown = json.loads(shared.wherry("version", "-o", "json").stdout)
    assert shown["server"] == shown["kubernetes"] and shown["runtime"].startswith("containerd ")


def test_logs_of_a_daemon_are_printed(shared: Cluster) -> None:
    lines = shared.wherry("logs", "control", "--tail", "3").stdout.splitlines()
    assert len(lines) == 3
    assert "agent.log" in shared.wherry("logs", "-n", "1").stdout


def test_down_and_up_leave_containers_data_and_addresses_as_they_were(shared: Cluster, ns: str) -> None:
    address = web(shared, ns, 2)
    before = container_ids(shared)
    uid = shared.get("namespace", ns)["metadata"]["uid"]
    assert "stopped" in shared.wherry("down").stdout
    assert shared.http(address), "Services answer while everything of ours is stopped"
    assert shared.wherry("status", check=False).returncode == 1
    shared.wherry("up")
    assert shared.get("namespace", ns)["metadata"]["uid"] == uid
    wait_pods(shared, ns, "app=web", 2)
    assert {k: v for k, v in container_ids(shared).items() if k.startswith(ns)} == {
        k: v for k, v in before.items() if k.startswith(ns)
    }
    assert shared.http(address)


def test_an_option_that_changes_is_in_force_when_up_returns(shared: Cluster, ns: str) -> None:
    url, ca = "https://api.example:6443/readyz", str(shared.prefix / "var/lib/wherry/pki/ca.crt")
    ask = ("curl", "-sS", "--resolve", "api.example:6443:172.30.0.2", "--cacert", ca, url)
    assert "subject" in shared.host.run(*ask, check=False).stderr
    web(shared, ns, 1)
    before = container_ids(shared)
    assert "stop what runs with other options" in shared.wherry("up", "--name", "api.example").stdout
    assert shared.host.run(*ask).stdout == "ok"
    assert "stop what runs" not in shared.wherry("up").stdout
    wait_pods(shared, ns, "app=web", 1)
    kept = container_ids(shared)
    assert {k: v for k, v in kept.items() if k.startswith(ns)} == {k: v for k, v in before.items() if k.startswith(ns)}


def test_what_identifies_the_cluster_is_refused_while_everything_runs_on(shared: Cluster) -> None:
    pids, saved = shared.pid("control"), (shared.prefix / "etc/wherry/wherry.json").read_bytes()
    for option, value, why in (
        ("--node-name", "other", f"this machine is node {NODE}"),
        ("--service-cidr", "10.112.0.0/16", "this cluster has 10.96.0.0/12"),
        ("--pod-cidr", "10.50.0.0/16", "this cluster has 10.244.0.0/16"),
        ("--cluster-domain", "foo.local", "this cluster has cluster.local"),
    ):
        done = shared.wherry("up", option, value, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1) and f"{option} {value}: {why}" in done.stderr
    assert (shared.pid("control"), (shared.prefix / "etc/wherry/wherry.json").read_bytes()) == (pids, saved)


def test_a_proxy_mode_that_the_machine_lacks_is_refused_while_everything_runs_on(
    shared: Cluster, tmp_path: Path
) -> None:
    for folder in map(Path, reversed(os.get_exec_path())):
        for program in folder.glob("*"):
            if program.name != "nft":
                (tmp_path / program.name).unlink(missing_ok=True)
                (tmp_path / program.name).symlink_to(program)
    pid = shared.pid("control")
    done = shared.wherry("up", "--proxy-mode", "nftables", check=False, env={"PATH": str(tmp_path)})
    assert done.returncode == 1 and "--proxy-mode nftables: the command nft is not installed" in done.stderr
    assert shared.pid("control") == pid and "stop what runs" not in shared.wherry("up").stdout


def test_an_upgrade_is_checked_before_anything_changes(shared: Cluster, ns: str) -> None:
    def rows(*options: str, code: int) -> dict[str, tuple[str, str, str]]:
        done = shared.wherry("upgrade", "--check", "-o", "json", *options, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return {row["check"]: (row["result"], row["found"], row["fix"]) for row in json.loads(done.stdout)}

    assert rows(code=1)["snapshot"][0] == "error"
    saved = shared.wherry("snapshot", "save", "--name", "before-upgrade").stdout.split(":")[0]
    web(shared, ns, 1)
    shared.kubectl("create", "poddisruptionbudget", "web", "-n", ns, "--selector=app=web", "--min-available=1")

    def budget() -> bool:
        status = shared.get("poddisruptionbudget", "web", "-n", ns)["status"]
        return bool(status.get("expectedPods")) and status["disruptionsAllowed"] == 0

    eventually(budget, "the budget allows nothing")
    found = rows(code=0)
    assert found["version"][0] == found["nodes"][0] == found["members"][0] == found["snapshot"][0] == "ok"
    assert "v1.36" in found["members"][1] and saved in found["snapshot"][1]
    assert found["disruption budgets"][:2] == ("warning", f"allow no eviction: {ns}/web")
    assert found["deprecated APIs"][0] == "ok"
    assert rows("--to", "v1.38.0", code=1)["version"][2] == "upgrade to v1.37 first: one minor version at a time"
    shared.wherry("snapshot", "delete", Path(saved).name)
    text = shared.wherry("upgrade", "--check", check=False).stdout
    assert re.search(
        r"^error +snapshot +there is none\n +fix: `wherry snapshot save --name before-upgrade`$", text, re.M
    )


def test_up_fails_with_the_reason_if_the_agent_does_not_start(shared: Cluster) -> None:
    state = shared.prefix / "var/lib/kubelet/cpu_manager_state"
    shared.wherry("down")
    kept = state.read_bytes() if state.exists() else None
    state.unlink(missing_ok=True)
    state.mkdir(parents=True)
    try:
        failed = shared.wherry("up", check=False)
        assert failed.returncode == 1
        assert "agent ends again and again" in failed.stderr and "cpu_manager_state" in failed.stderr, failed.stderr
        assert str(shared.prefix / "var/log/wherry/agent.log") in "".join(failed.stderr.split())
        status = shared.wherry("status", check=False)
        assert status.returncode == 1 and "agent" in status.stdout
    finally:
        state.rmdir()
        if kept is not None:
            state.write_bytes(kept)
    assert "The cluster is up" in shared.wherry("up").stdout
    assert shared.wherry("status").returncode == 0


def test_a_daemon_that_is_killed_is_started_again_at_once(shared: Cluster) -> None:
    for _ in range(3):
        eventually(lambda: shared.wherry("status", check=False).returncode == 0, "all is well")
        for daemon in ("control", "netproxy"):
            shared.kill(daemon)
    eventually(lambda: shared.wherry("status", check=False).returncode == 0, "all is well")


def test_reset_leaves_nothing_and_a_new_installation_works() -> None:
    name = f"wherry-r{os.getpid()}"
    with cluster(name) as made:
        address = web(made, "default", 2)
        assert made.http(address)
        ports = [{"containerPort": 80, "hostPort": 8088}]
        published = {"name": "web", "image": WEB_IMAGE, "imagePullPolicy": "Never", "ports": ports}
        overrides = json.dumps({"spec": {"containers": [published]}})
        made.kubectl("run", "published", f"--image={WEB_IMAGE}", f"--overrides={overrides}")
        made.kubectl("wait", "pod/published", "--for=condition=Ready", "--timeout=60s", timeout=90)
        assert "CNI-HOSTPORT-DNAT" in made.host.run("iptables-save").stdout
        ours = leftovers.pids(made)
        made.wherry("reset", "--yes")
        leftovers.assert_nothing_left(made, ours)
        made.up()
        made.kubectl("get", "node", NODE)
