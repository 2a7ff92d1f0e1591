"""Volumes as containers see them, live updates of what they show, and what happens to them after."""

from __future__ import annotations

import base64
import json
from typing import Any

from tests.support.cluster import Cluster, eventually
from tests.support.kube import events, wait_phase
from tests.support.pods import FOR_EVER, apply, container, execute, logs, pod, status_of, wait_running


def mounts(**paths: str) -> dict[str, Any]:
    """Mount volumes: name=path."""
    return {"volumeMounts": [{"name": name, "mountPath": path} for name, path in paths.items()]}


def test_an_empty_dir_is_shared_by_the_pods_containers_and_outlives_them(shared: Cluster, ns: str) -> None:
    once = f"[ -e /data/kept ] || {{ echo first > /data/kept; exit 1; }}; {FOR_EVER}"
    writer = container(once, **mounts(data="/data", memory="/memory"))
    reader = container(FOR_EVER, "reader", **mounts(data="/data"))
    volumes = [
        {"name": "data", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
    ]
    apply(shared, ns, pod("pair", writer, reader, volumes=volumes))
    eventually(lambda: status_of(shared, ns, "pair")["restartCount"] == 1, "the writer was started again")
    wait_running(shared, ns, "pair")
    read = shared.kubectl("exec", "pair", "-c", "reader", "-n", ns, "--", "cat", "/data/kept").stdout
    assert read == "first\n"
    mounted = execute(shared, ns, "pair", "mount | grep ' /memory '; df -k /memory | tail -1")
    assert "type tmpfs" in mounted
    assert mounted.splitlines()[1].split()[1] == str(8 * 1024)
    assert execute(shared, ns, "pair", "stat -c %a /data").strip() == "777"
    uid = shared.get("pod", "pair", "-n", ns)["metadata"]["uid"]
    folder = shared.prefix / "var/lib/kubelet/pods" / uid
    assert (folder / "volumes/kubernetes.io~empty-dir/data/kept").exists()
    shared.kubectl("delete", "pod", "pair", "-n", ns)
    eventually(lambda: not folder.exists(), "nothing is left of the pod's folder")


def test_host_paths_are_mounted_by_their_type(shared: Cluster, ns: str) -> None:
    folder = shared.prefix / f"host-{ns}"
    folder.mkdir()
    (folder / "file").write_text("from the host\n")

    def volume(path: str, type_: str) -> dict[str, Any]:
        return {"volumes": [{"name": "host", "hostPath": {"path": str(folder / path), "type": type_}}]}

    at = mounts(host="/host")
    apply(
        shared,
        ns,
        pod(
            "reads",
            container("cat /host/file; echo back > /host/back", **at),
            restartPolicy="Never",
            **volume("", "Directory"),
        ),
        pod("makes", container("echo x > /host/x", **at), restartPolicy="Never", **volume("new", "DirectoryOrCreate")),
        pod("file", container("cat /host", **at), restartPolicy="Never", **volume("file", "File")),
        pod("missing", container(**at), **volume("none", "Directory")),
    )
    wait_phase(shared, ns, "reads", "Succeeded")
    assert logs(shared, ns, "reads") == "from the host\n"
    assert (folder / "back").read_text() == "back\n"
    wait_phase(shared, ns, "makes", "Succeeded")
    assert (folder / "new/x").exists()
    wait_phase(shared, ns, "file", "Succeeded")
    assert logs(shared, ns, "file") == "from the host\n"

    def refused() -> bool:
        found = {(e["type"], e["reason"], e["message"]) for e in events(shared, ns, "missing")}
        path = folder / "none"
        message = f'MountVolume.SetUp failed for volume "host" : hostPath type check failed: {path} is not a directory'
        assert ("Warning", "FailedMount", message) in found, found
        return True

    eventually(refused, "the type check's event")
    table = shared.kubectl("get", "pod", "missing", "-n", ns, "--no-headers").stdout
    assert table.split()[1:3] == ["0/1", "ContainerCreating"]


def test_files_come_from_config_maps_secrets_and_the_pod_itself(shared: Cluster, ns: str) -> None:
    shared.kubectl("create", "configmap", "plain", "--from-literal=a=1", "--from-literal=b=2", "-n", ns)
    shared.kubectl("create", "secret", "generic", "hidden", "--from-literal=key=s3cret", "-n", ns)
    label = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    about = [
        *label,
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}},
    ]
    token = {"serviceAccountToken": {"audience": "ferry", "expirationSeconds": 3600, "path": "token"}}
    volumes = [
        {"name": "all", "configMap": {"name": "plain"}},
        {"name": "some", "configMap": {"name": "plain", "items": [{"key": "b", "path": "deep/er", "mode": 0o400}]}},
        {"name": "gone", "configMap": {"name": "nonsuch", "optional": True}},
        {"name": "hidden", "secret": {"secretName": "hidden", "defaultMode": 0o440}},
        {"name": "self", "downwardAPI": {"items": about}},
        {
            "name": "mix",
            "projected": {
                "defaultMode": 0o444,
                "sources": [
                    {"configMap": {"name": "plain", "items": [{"key": "a", "path": "cm"}]}},
                    {"secret": {"name": "hidden", "items": [{"key": "key", "path": "nested/secret"}]}},
                    {"downwardAPI": {"items": label}},
                    token,
                ],
            },
        },
    ]
    at = mounts(all="/all", some="/some", gone="/gone", hidden="/hidden", self="/self", mix="/mix")
    made = pod(
        "files",
        container(resources={"limits": {"cpu": "150m"}}, **at),
        labels={"tier": "front", "n": "1"},
        volumes=volumes,
        securityContext={"fsGroup": 4321},
    )
    apply(shared, ns, made)
    wait_running(shared, ns, "files")
    script = "cd {0}; for f in $(find . -name '..*' -prune -o ! -type d -print | sort); do echo \"$f=$(cat $f)\"; done"

    def files(folder: str) -> list[str]:
        return execute(shared, ns, "files", script.format(folder)).splitlines()

    assert files("/all") == ["./a=1", "./b=2"]
    assert execute(shared, ns, "files", "cat /some/deep/er; stat -L -c %a /some/deep/er") == "2440\n"
    assert files("/gone") == []
    assert execute(shared, ns, "files", "cat /hidden/key; stat -L -c ' %a %g' /hidden/key") == "s3cret 440 4321\n"
    assert execute(shared, ns, "files", "cat /self/labels; echo; cat /self/cpu") == 'n="1"\ntier="front"\n150'
    assert execute(shared, ns, "files", "cat /mix/cm /mix/nested/secret") == "1s3cret"
    claims = execute(shared, ns, "files", "cut -d. -f2 /mix/token")
    assert json.loads(_decode(claims))["aud"] == ["ferry"]
    assert json.loads(_decode(claims))["kubernetes.io"]["pod"]["name"] == "files"
    refused = shared.kubectl("exec", "files", "-n", ns, "--", "sh", "-c", "echo x > /all/a", check=False)
    assert "Read-only file system" in refused.stderr
    assert "type tmpfs" in execute(shared, ns, "files", "mount | grep ' /hidden '"), "secrets are never on a disk"


def _decode(part: str) -> bytes:
    part = part.strip()
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_mounted_config_map_follows_its_object_all_at_once(shared: Cluster, ns: str) -> None:
    shared.kubectl("create", "configmap", "live", "--from-literal=one=1", "--from-literal=two=1", "-n", ns)
    # The watcher reads both files of one version through the link that is switched, and would see a mixture.
    watcher = (
        "cd /live; while :; do d=$(readlink ..data); a=$(cat $d/one 2>/dev/null); b=$(cat $d/two 2>/dev/null); "
        'now=$(readlink ..data); [ "$d" = "$now" ] && [ "$a" != "$b" ] && echo "torn $a $b" >> /torn; sleep 0.02; done'
    )
    volumes = [{"name": "live", "configMap": {"name": "live"}}]
    single = [{"name": "live", "mountPath": "/live"}, {"name": "live", "mountPath": "/one", "subPath": "one"}]
    apply(shared, ns, pod("reader", container(watcher, volumeMounts=single), volumes=volumes))
    wait_running(shared, ns, "reader")
    for number in "2345":
        patch = json.dumps({"data": {"one": number, "two": number}})
        shared.kubectl("patch", "configmap", "live", "-n", ns, "-p", patch)
        eventually(
            lambda n=number: execute(shared, ns, "reader", "cat /live/one /live/two") == n * 2,  # type: ignore[misc]
            "the new content",
        )
    assert execute(shared, ns, "reader", "cat /torn 2>/dev/null || true") == ""
    assert execute(shared, ns, "reader", "cat /one") == "1", "a subPath keeps what it was mounted with"
    shared.kubectl("patch", "configmap", "live", "-n", ns, "--type=json", "-p", '[{"op":"remove","path":"/data/two"}]')
    eventually(lambda: execute(shared, ns, "reader", "ls /live") == "one\n", "the removed key's file is gone")
    assert status_of(shared, ns, "reader")["restartCount"] == 0


def test_labels_and_annotations_are_followed_too(shared: Cluster, ns: str) -> None:
    items = [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]
    volumes = [{"name": "self", "downwardAPI": {"items": items}}]
    apply(shared, ns, pod("me", container(**mounts(self="/self")), labels={"a": "1"}, volumes=volumes))
    wait_running(shared, ns, "me")
    shared.kubectl("label", "pod", "me", "a=2", "b=3", "--overwrite", "-n", ns)
    eventually(lambda: execute(shared, ns, "me", "cat /self/labels") == 'a="2"\nb="3"', "the new labels", 60)


def test_sub_paths_and_read_only_mounts(shared: Cluster, ns: str) -> None:
    folder = shared.prefix / f"sub-{ns}"
    (folder / "inside").mkdir(parents=True)
    (folder / "inside/file").write_text("inside\n")
    secret = shared.prefix / f"secret-{ns}"
    secret.mkdir()
    (secret / "file").write_text("outside\n")
    (folder / "link").symlink_to(secret)
    volumes = [{"name": "host", "hostPath": {"path": str(folder)}}]

    def mount(path: str, **more: Any) -> dict[str, Any]:
        return {"volumeMounts": [{"name": "host", "mountPath": path, **more}]}

    named = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    escaping = mount("/sub", subPath="link")
    apply(
        shared,
        ns,
        pod(
            "sub", container("cat /sub/file", **mount("/sub", subPath="inside")), restartPolicy="Never", volumes=volumes
        ),
        pod(
            "one", container("cat /one", **mount("/one", subPath="inside/file")), restartPolicy="Never", volumes=volumes
        ),
        pod(
            "expr",
            container("echo here > /sub/mine", env=named, **mount("/sub", subPathExpr="made/$(POD)")),
            restartPolicy="Never",
            volumes=volumes,
        ),
        pod(
            "readonly",
            container("touch /ro/x 2>&1 | grep -o Read-only", **mount("/ro", readOnly=True)),
            restartPolicy="Never",
            volumes=volumes,
        ),
        pod("escapes", container("cat /sub/file", **escaping), restartPolicy="Never", volumes=volumes),
    )
    for name, output in (("sub", "inside\n"), ("one", "inside\n"), ("expr", ""), ("readonly", "Read-only\n")):
        wait_phase(shared, ns, name, "Succeeded")
        assert logs(shared, ns, name) == output
    assert (folder / "made/expr/mine").read_text() == "here\n"

    def refused() -> bool:
        waiting = status_of(shared, ns, "escapes")["state"].get("waiting", {})
        assert waiting.get("reason") == "CreateContainerConfigError", waiting
        return str(waiting["message"]).startswith('failed to prepare subPath for volumeMount "host" of container "c"')

    eventually(refused, "a link out of the volume is refused")


def test_a_pod_waits_for_the_secret_it_mounts(shared: Cluster, ns: str) -> None:
    volumes = [{"name": "late", "secret": {"secretName": "late"}}]
    apply(shared, ns, pod("waits", container(**mounts(late="/late")), volumes=volumes))

    def is_reported() -> bool:
        found = {(e["reason"], e["message"]) for e in events(shared, ns, "waits")}
        return ("FailedMount", 'MountVolume.SetUp failed for volume "late" : secret "late" not found') in found

    eventually(is_reported, "the event about the missing secret")
    assert shared.get("pod", "waits", "-n", ns)["status"]["phase"] == "Pending"
    shared.kubectl("create", "secret", "generic", "late", "--from-literal=k=v", "-n", ns)
    wait_running(shared, ns, "waits")
    assert execute(shared, ns, "waits", "cat /late/k") == "v"


def test_a_claim_is_a_folder_on_the_node_that_outlives_pods_and_goes_with_the_claim(shared: Cluster, ns: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}},
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    user = {"runAsUser": 1000, "fsGroup": 2000}
    at = mounts(data="/data")
    apply(shared, ns, claim)
    write = container("echo kept > /data/file", **at)
    apply(shared, ns, pod("writes", write, restartPolicy="Never", volumes=volumes, securityContext=user))
    wait_phase(shared, ns, "writes", "Succeeded")
    shared.kubectl("delete", "pod", "writes", "-n", ns)
    apply(shared, ns, pod("reads", container("cat /data/file", **at), restartPolicy="Never", volumes=volumes))
    wait_phase(shared, ns, "reads", "Succeeded")
    assert logs(shared, ns, "reads") == "kept\n"
    bound = shared.get("pvc", "data", "-n", ns)
    assert (bound["status"]["phase"], bound["spec"]["storageClassName"]) == ("Bound", "local-path")
    name = bound["spec"]["volumeName"]
    folder = shared.prefix / "var/lib/kubelet/local-path" / name
    assert (folder / "file").read_text() == "kept\n"

    def provisioned() -> bool:
        reasons = {event["reason"] for event in events(shared, ns, "data")}
        waiting = {"WaitForFirstConsumer", "WaitForPodScheduled", "ExternalProvisioning"}
        assert reasons <= {*waiting, "Provisioning", "ProvisioningSucceeded"}
        return "ProvisioningSucceeded" in reasons

    eventually(provisioned, "the events tell of it")
    shared.kubectl("delete", "pod", "reads", "-n", ns)
    shared.kubectl("delete", "pvc", "data", "-n", ns)
    eventually(lambda: shared.kubectl("get", "pv", name, check=False).returncode == 1, "the volume's object is gone")
    assert not folder.exists()
    shared_mode = claim | {"metadata": {"name": "shared"}, "spec": claim["spec"] | {"accessModes": ["ReadWriteMany"]}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}]
    apply(shared, ns, shared_mode, pod("waits", container(FOR_EVER, **at), volumes=volumes))

    def refused() -> bool:
        return any("ReadWriteMany" in event["message"] for event in events(shared, ns, "shared"))

    eventually(refused, "the claim is told why it gets no volume")
