"""Addons on a machine: a file is applied, pruned, kept, listed and disabled, as kubectl and the command see it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from tests.support.cluster import WEB_IMAGE, Cluster, eventually
from tests.support.kube import ready_pods

PART_OF = "applyset.kubernetes.io/part-of"


def manifests(namespace: str, *more: Any) -> list[Any]:
    labels = {"app": "board"}
    container = {"name": "web", "image": WEB_IMAGE}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "board", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "board", "namespace": namespace},
        "spec": {"selector": labels, "ports": [{"port": 80}]},
    }
    return [service, deployment, *more, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}]


def config_map(namespace: str, name: str) -> Any:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


def write(path: Path, objects: list[Any]) -> None:
    draft = path.parents[1] / path.name
    draft.write_text("---\n".join(f"{json.dumps(each)}\n" for each in objects))
    draft.chmod(0o644)
    draft.rename(path)


def listed(cluster: Cluster) -> dict[str, Any]:
    return {each["name"]: each for each in json.loads(cluster.wherry("addons", "list", "-o", "json").stdout)}


def test_an_addon_is_applied_pruned_kept_and_disabled(shared: Cluster) -> None:
    namespace = "board-addon"
    folder = shared.prefix / "var/lib/wherry/addons"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    path = folder / "board.yaml"
    write(path, manifests(namespace, config_map(namespace, "extra")))
    try:
        eventually(lambda: listed(shared).get("board", {}).get("state") == "Applied", "the addon is applied")
        eventually(lambda: ready_pods(shared, namespace, "app=board"), "its pod runs")
        addon = listed(shared)["board"]
        assert (addon["file"], addon["objects"]) == ("board.yaml", 4) and listed(shared)["metrics"][
            "state"
        ] == "Enabled"
        selector = f"{PART_OF}={addon['applySet']}"
        kinds = "namespaces,deployments,services,configmaps,endpointslices"
        shown = shared.kubectl("get", kinds, "-A", "-l", selector, "-o", "name").stdout.split()
        assert {"namespace/board-addon", "deployment.apps/board", "service/board", "configmap/extra"} <= set(shown)
        wide = shared.wherry("addons", "list", "-o", "wide").stdout
        assert addon["applySet"] in wide and "172.30.0.2" in wide

        shared.kubectl("-n", namespace, "delete", "service", "board")
        shared.kubectl("-n", namespace, "set", "image", "deployment/board", "web=wherry.test/other:9")
        eventually(
            lambda: shared.kubectl("-n", namespace, "get", "service", "board", check=False).returncode == 0, "service"
        )

        def image() -> str:
            found = shared.get("-n", namespace, "deployment", "board")
            return str(found["spec"]["template"]["spec"]["containers"][0]["image"])

        eventually(lambda: image() == WEB_IMAGE, "the image is that of the file")
        events = shared.kubectl("-n", "kube-system", "events", "--for", "configmap/addon-board").stdout
        assert "AddonApplied" in events and "AddonReverted" in events

        path.chmod(0o666)
        eventually(lambda: listed(shared)["board"]["state"] == "Refused", "the file is refused")
        assert f"chmod go-w {path}" in listed(shared)["board"]["message"]
        write(path, manifests(namespace))
        eventually(
            lambda: shared.kubectl("-n", namespace, "get", "configmap", "extra", check=False).returncode == 1,
            "the object that left the file is deleted",
        )
        assert listed(shared)["board"]["objects"] == 3 and ready_pods(shared, namespace, "app=board")

        shared.up("--disable", "board", "--disable", "metrics")
        eventually(lambda: listed(shared)["board"]["state"] == "Disabled", "the addon is disabled", 120)
        assert shared.kubectl("get", "namespace", namespace, check=False).returncode == 1
        assert "NotFound" in shared.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes", check=False).stderr
        shared.up("--unset", "disable")
        eventually(lambda: listed(shared)["board"]["state"] == "Applied", "the addon is applied again", 120)
        shared.kubectl("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
    finally:
        path.unlink()
    eventually(lambda: "board" not in listed(shared), "the addon is gone", 120)
    assert shared.kubectl("get", "namespace", namespace, check=False).returncode == 1
