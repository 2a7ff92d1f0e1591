"""Validation of a pod's volumes, source by source, and of their mounts in containers."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import container, created, pod, problems, update_problems, workload

V = "spec.volumes[0]"
NO_DOTS = "must not contain '..'"


def volume(**source: Any) -> Object:
    return pod(volumes=[{"name": "v", **source}])


def projected(*sources: Object) -> Object:
    return pod(serviceAccountName="a", volumes=[{"name": "v", "projected": {"sources": list(sources)}}])


def mounted(**mount: Any) -> Object:
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return pod(volumes=[{"name": "v"}], containers=[container(volumeMounts=mounts)])


def device(*devices: Object, **parts: Any) -> Object:
    claim = {"name": "c", "persistentVolumeClaim": {"claimName": "x"}}
    volumes = [claim, {"name": "e", "emptyDir": {}}]
    return pod(volumes=volumes, containers=[container(volumeDevices=list(devices), **parts)])


IQN = "iqn.2001-04.com.example:storage"
REFUSED = [
    (volume(hostPath={"path": ""}), f"{V}.hostPath.path: Required value"),
    (volume(hostPath={"path": "/a/../b"}), f'{V}.hostPath.path: Invalid value: "/a/../b": {NO_DOTS}'),
    (
        volume(hostPath={"path": "/a", "type": "Folder"}),
        f'{V}.hostPath.type: Unsupported value: "Folder": supported values: "", "BlockDevice", "CharDevice", "Directory", '
        '"DirectoryOrCreate", "File", "FileOrCreate", "Socket"',
    ),
    (
        volume(emptyDir={"sizeLimit": "-1"}),
        f"{V}.emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
    ),
    (volume(secret={"secretName": "s", "items": [{"path": "p"}]}), f"{V}.secret.items[0].key: Required value"),
    (
        volume(secret={"secretName": "s", "items": [{"key": "k", "path": "..p"}]}),
        f"{V}.secret.items[0].path: Invalid value: \"..p\": must not start with '..'",
    ),
    (
        volume(configMap={"name": "c", "items": [{"key": "k", "path": "/p"}]}),
        f'{V}.configMap.items[0].path: Invalid value: "/p": must be a relative path',
    ),
    (
        volume(downwardAPI={"items": [{"path": "p"}]}),
        f"{V}.downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
    ),
    (volume(nfs={"server": "s", "path": "p"}), f'{V}.nfs.path: Invalid value: "p": must be an absolute path'),
    (volume(nfs={"path": "/p"}), f"{V}.nfs.server: Required value"),
    *(
        (
            volume(nfs={"server": server, "path": "/p"}),
            f"{V}.nfs.server: Invalid value: {json.dumps(server, ensure_ascii=False)}: must be a host name or IP address: "
            "it may not begin with '-' or contain white space or control characters",
        )
        for server in ("-iT/x", "a b", "a\tb", "a\x85b")
    ),
    (
        volume(nfs={"server": "s", "path": "/p\n/q"}),
        f'{V}.nfs.path: Invalid value: "/p\\n/q": may not contain control characters',
    ),
    (
        volume(iscsi={"targetPortal": "p", "iqn": "x"}),
        f'{V}.iscsi.iqn: Invalid value: "x": must be valid format',
    ),
    (
        volume(iscsi={"targetPortal": "p", "iqn": IQN, "lun": 300}),
        f"{V}.iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive",
    ),
    (
        volume(iscsi={"targetPortal": "p", "iqn": IQN, "chapAuthSession": True}),
        f"{V}.iscsi.secretRef: Required value",
    ),
    (
        volume(fc={}),
        f"{V}.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both",
    ),
    (volume(fc={"targetWWNs": ["a"]}), f"{V}.fc.lun: Required value: lun is required if targetWWNs is specified"),
    (
        volume(azureDisk={"diskName": "d", "diskURI": "u", "kind": "Odd"}),
        f'{V}.azureDisk.kind: Unsupported value: "Odd": supported values: "Dedicated", "Managed", "Shared"',
    ),
    (
        volume(gcePersistentDisk={"pdName": "p", "partition": 300}),
        f"{V}.gcePersistentDisk.partition: Invalid value: 300: must be between 0 and 255, inclusive",
    ),
    (volume(flocker={}), f"{V}.flocker: Required value: one of datasetName and datasetUUID is required"),
    (
        volume(flexVolume={"driver": "d", "options": {"kubernetes.io/x": "y"}}),
        f'{V}.flexVolume.options[kubernetes.io/x]: Invalid value: "kubernetes.io/x": kubernetes.io and k8s.io namespaces '
        "are reserved",
    ),
    (volume(csi={}), f"{V}.csi.driver: Required value"),
    (volume(csi={"driver": "d" * 64}), f"{V}.csi.driver: Too long: may not be more than 63 bytes"),
    (volume(image={}), f"{V}.image.reference: Required value"),
    (
        volume(image={"reference": "a:1", "pullPolicy": "Maybe"}),
        f'{V}.image.pullPolicy: Unsupported value: "Maybe": supported values: "Always", "IfNotPresent", "Never"',
    ),
    (volume(ephemeral={}), f"{V}.ephemeral.volumeClaimTemplate: Required value"),
    (
        pod(volumes=[{"name": "v", "projected": {"sources": [{"secret": {}}]}}]),
        f"{V}.projected.sources[0].secret.name: Required value",
    ),
    (
        projected({"secret": {"name": "s"}, "configMap": {"name": "c"}}),
        f"{V}.projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
    ),
    (projected({"serviceAccountToken": {}}), f"{V}.projected.path: Required value"),
    (
        projected(*({"secret": {"name": n, "items": [{"key": "k", "path": "p"}]}} for n in ("a", "b"))),
        f'{V}.projected: Invalid value: "b": conflicting duplicate paths',
    ),
    (
        mounted(recursiveReadOnly="Enabled"),
        "spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
    ),
    (
        mounted(recursiveReadOnly="Always"),
        'spec.containers[0].volumeMounts.recursiveReadOnly: Unsupported value: "Always": supported values: "Disabled", '
        '"Enabled", "IfPossible"',
    ),
    (
        mounted(mountPropagation="Bidirectional"),
        "spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to "
        "privileged containers",
    ),
    (device({"name": "x", "devicePath": "/d"}), 'spec.containers[0].volumeDevices[0].name: Not found: "x"'),
    (
        device({"name": "e", "devicePath": "/d"}),
        'spec.containers[0].volumeDevices[0].name: Invalid value: "e": can only use volume source type of '
        "PersistentVolumeClaim or Ephemeral for block mode",
    ),
    (
        device({"name": "c", "devicePath": "/d"}, volumeMounts=[{"name": "c", "mountPath": "/m"}]),
        'spec.containers[0].volumeDevices[0].name: Invalid value: "c": must not already exist in volumeMounts',
    ),
    (
        device({"name": "c", "devicePath": "/a/../d"}),
        "spec.containers[0].volumeDevices[0].devicePath: Invalid value: \"/a/../d\": can not contain backsteps ('..')",
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[m[:80] for _, m in REFUSED])
def test_a_bad_volume_is_refused_in_upstreams_words(obj: Object, message: str) -> None:
    assert message in problems(obj)


ACCEPTED = [
    volume(hostPath={"path": "/a", "type": "Directory"}),
    volume(iscsi={"targetPortal": "p", "iqn": IQN, "lun": 0}),
    volume(fc={"wwids": ["a"]}),
    volume(csi={"driver": "csi.example.com"}),
    volume(image={"reference": "registry.local/data:1"}),
    volume(gitRepo={"repository": "r", "directory": "."}),
    volume(secret={"secretName": "s", "items": [{"key": "k", "path": "a..b/c"}]}),
    projected({"serviceAccountToken": {"path": "token"}}, {"downwardAPI": {}}),
    mounted(recursiveReadOnly="IfPossible", readOnly=True),
    mounted(subPath="..data"),
    device({"name": "c", "devicePath": "/d"}),
]


@pytest.mark.parametrize("obj", ACCEPTED, ids=lambda o: str(o["spec"]["volumes"][0])[:60])
def test_a_good_volume_is_accepted(obj: Object) -> None:
    assert problems(obj) == []


UNSAFE = ({"server": "-iT/x", "path": "/p"}, {"server": "s", "path": "/p\n/q"})


@pytest.mark.parametrize("source", UNSAFE)
def test_a_stored_pod_with_a_source_that_is_refused_today_stays_changeable(source: Object) -> None:
    stored = created(volume(nfs=source))
    changed = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    assert problems(stored) and update_problems(stored, changed) == []


@pytest.mark.parametrize("source", UNSAFE)
def test_a_stored_template_with_such_a_source_stays_changeable_and_another_one_does_not_come_in(source: Object) -> None:
    stored = created(workload("Deployment"))
    spec = stored["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "v", "nfs": source}]
    fewer = copy.deepcopy(stored)
    fewer["spec"]["replicas"] = 3
    fewer["spec"]["template"]["spec"]["volumes"].insert(0, {"name": "w", "emptyDir": {}})
    assert problems(stored) and update_problems(stored, fewer) == []
    other = copy.deepcopy(stored)
    other["spec"]["template"]["spec"]["volumes"].append({"name": "w", "nfs": {"server": "s", "path": "/\0"}})
    assert [text.partition(":")[0] for text in update_problems(stored, other)] == [
        "spec.template.spec.volumes[1].nfs.path"
    ]
