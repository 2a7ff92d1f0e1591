"""Upstream's conformance tests of pods and volumes that no other module here covers (docs/conformance.md)."""

from __future__ import annotations

import json
from typing import Any

from kube.json_object import Object
from tests.support.cluster import BUSYBOX, NODE, WEB_IMAGE, Cluster, eventually
from tests.support.kube import is_ready, pod_phase

MOUNT = [{"name": "v", "mountPath": "/v"}]


def pod(name: str, script: str, container: Object | None = None, **spec: Any) -> Object:
    """Return a pod that runs a script once; `container` and `spec` are added to its parts."""
    made = {"name": "c", "image": BUSYBOX, "command": ["sh", "-c", script], **(container or {})}
    whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [made], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def mounting(name: str, script: str, volume: Object, **spec: Any) -> Object:
    """Return a pod that runs a script with a volume at /v."""
    return pod(name, script, {"volumeMounts": MOUNT}, volumes=[{"name": "v", **volume}], **spec)


def create(cluster: Cluster, ns: str, *objects: Object) -> None:
    body = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("create", "-n", ns, "-f", "-", input=json.dumps(body))


def ended(cluster: Cluster, ns: str, name: str) -> Object:
    def look() -> Object | None:
        found: Object = cluster.get("pod", name, "-n", ns)
        return found if found["status"].get("phase") in ("Succeeded", "Failed") else None

    return eventually(look, f"{name} ends", 90)


def test_files_have_the_modes_and_the_group_that_were_requested(shared: Cluster, ns: str) -> None:
    show = "stat -L -c '%a %g' /v/FILE; cat /v/FILE"
    nobody = {"securityContext": {"runAsUser": 1000, "fsGroup": 1001}}
    items = [{"key": "k", "path": "p/q", "mode": 0o400}]
    sources: list[Object] = [{"configMap": {"name": "o"}}, {"secret": {"name": "o"}}]
    chosen: list[Object] = [{"configMap": {"name": "o", "items": items}}]
    kinds: dict[str, tuple[Object, Object]] = {
        "map": (
            {"configMap": {"name": "o", "defaultMode": 0o440}},
            {"configMap": {"name": "o", "items": items}},
        ),
        "secret": (
            {"secret": {"secretName": "o", "defaultMode": 0o440}},
            {"secret": {"secretName": "o", "items": items}},
        ),
        "projected": (
            {"projected": {"sources": sources, "defaultMode": 0o440}},
            {"projected": {"sources": chosen}},
        ),
    }
    pods: list[Object] = []
    wanted: dict[str, str] = {}
    for kind, (limited, named) in kinds.items():
        pods.append(mounting(f"{kind}-group", show.replace("FILE", "k"), limited, **nobody))
        pods.append(mounting(f"{kind}-item", show.replace("FILE", "p/q"), named))
        wanted |= {f"{kind}-group": "440 1001\nvalue", f"{kind}-item": "400 0\nvalue"}
    create(
        shared,
        ns,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o"}, "data": {"k": "value"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "o"}, "stringData": {"k": "value"}},
        *pods,
    )
    for name, text in wanted.items():
        assert ended(shared, ns, name)["status"]["phase"] == "Succeeded"
        assert shared.kubectl("logs", name, "-n", ns).stdout == text, name


def test_sysctls_expansions_overhead_and_names_of_variables(shared: Cluster, ns: str) -> None:
    settings = {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]}
    unsafe = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}
    runtime = f"conformance-{ns}"
    by_name = [{"name": "v", "mountPath": "/v", "subPathExpr": "$(WHERE)"}]
    whole = [{"name": "v", "mountPath": "/whole"}]
    empty = [{"name": "v", "emptyDir": {}}]

    def under(path: str) -> Object:
        return {"env": [{"name": "WHERE", "value": path}], "volumeMounts": by_name + whole}

    prefixes = [{"prefix": prefix, "configMapRef": {"name": "o"}} for prefix in ("", "#_", "$_", "1.a b")]
    create(
        shared,
        ns,
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": runtime},
            "handler": "runc",
            "overhead": {"podFixed": {"cpu": "10m"}},
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o"}, "data": {"data-1": "value"}},
    )
    create(
        shared,
        ns,
        pod("safe", "cat /proc/sys/kernel/shm_rmid_forced", securityContext=settings),
        pod("unsafe", "true", securityContext=unsafe),
        pod("names", "", {"command": ["env"], "envFrom": prefixes}),
        pod("under", "touch /v/f; ls /whole/a/b", under("a/b"), volumes=empty),
        pod("climbs", "true", under(".."), volumes=empty),
        pod("absolute", "true", under("/tmp"), volumes=empty),
        pod("heavier", "true", runtimeClassName=runtime),
        pod("tail", "printf no-newline; false", {"terminationMessagePolicy": "FallbackToLogsOnError"}),
    )
    try:
        assert shared.get("pod", "heavier", "-n", ns)["spec"]["overhead"] == {"cpu": "10m"}
        said = {}
        for name in ("safe", "names", "under", "heavier"):
            assert ended(shared, ns, name)["status"]["phase"] == "Succeeded", name
            said[name] = shared.kubectl("logs", name, "-n", ns).stdout
        assert said["safe"] == "1\n" and said["under"] == "f\n"
        assert {"data-1=value", "#_data-1=value", "$_data-1=value", "1.a bdata-1=value"} <= set(
            said["names"].split("\n")
        )
        assert ended(shared, ns, "unsafe")["status"]["reason"] == "SysctlForbidden"
        tail = ended(shared, ns, "tail")["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (tail["exitCode"], tail["message"]) == (1, "no-newline")
        for name in ("climbs", "absolute"):

            def waits(name: str = name) -> bool:
                state = shared.get("pod", name, "-n", ns)["status"]["containerStatuses"][0]["state"]
                return bool(state["waiting"]["reason"] == "CreateContainerConfigError")

            eventually(waits, f"{name} is not started")
    finally:
        shared.kubectl("delete", "runtimeclass", runtime)
    refused = shared.kubectl(
        "create", "-n", ns, "-f", "-", input=json.dumps(pod("late", "true", runtimeClassName=runtime)), check=False
    )
    assert "Forbidden" in refused.stderr and f'RuntimeClass "{runtime}" not found' in refused.stderr


def test_a_generation_counts_changes_of_the_spec_and_is_observed(shared: Cluster, ns: str) -> None:
    made = pod("g", "sleep 1000")
    made["metadata"]["generation"] = 100
    create(shared, ns, made)
    eventually(lambda: pod_phase(shared, ns, "g") == "Running", "the pod runs", 60)

    def observed(generation: int) -> None:
        def look() -> bool:
            found = shared.get("pod", "g", "-n", ns)
            assert found["metadata"]["generation"] == generation, found["metadata"]
            return bool(found["status"].get("observedGeneration") == generation)

        eventually(look, f"generation {generation} is observed")

    observed(1)
    changes: list[tuple[Object, int]] = [
        ({"spec": {"activeDeadlineSeconds": 5000}}, 2),
        ({"metadata": {"annotations": {"a": "b"}}}, 2),
        ({"metadata": {"generation": 1}}, 2),
        ({"spec": {"containers": [{"name": "c", "image": WEB_IMAGE}]}}, 3),
    ]
    for patch, generation in changes:
        shared.kubectl("patch", "pod", "g", "-n", ns, "-p", json.dumps(patch))
        observed(generation)


def test_one_host_port_is_given_out_for_each_address_and_protocol(shared: Cluster, ns: str) -> None:
    def serving(name: str, address: str, protocol: str) -> Object:
        port = {"hostPort": 54323, "containerPort": 80, "hostIP": address, "protocol": protocol}
        return pod(name, "", {"image": WEB_IMAGE, "command": None, "ports": [port]})

    create(
        shared,
        ns,
        serving("inside", "127.0.0.1", "TCP"),
        serving("outside", shared.host.address, "TCP"),
        serving("datagrams", shared.host.address, "UDP"),
    )
    for name in ("inside", "outside", "datagrams"):
        found = eventually(
            lambda name=name: next(  # type: ignore[misc]
                (p for p in [shared.get("pod", name, "-n", ns)] if is_ready(p)), None
            ),
            f"{name} is ready",
            60,
        )
        assert found["spec"]["nodeName"] == NODE
    eventually(lambda: shared.http("127.0.0.1:54323") == "inside v1", "the one at the loopback address answers")
    eventually(
        lambda: shared.http(f"{shared.host.address}:54323") == "outside v1", "the one at the node's address answers"
    )
