"""Annotations of pods that mean something, and what updates, debugging and resizing may change."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import container, created, pod, problems, strategy_of, update_problems

APPARMOR = "container.apparmor.security.beta.kubernetes.io/c"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
COST = "controller.kubernetes.io/pod-deletion-cost"
MIRROR = "kubernetes.io/config.mirror"


LABELLED = {"name": "web", "labels": {"app": "web"}}
SPREAD = "spec.topologySpreadConstraints[0]"


def spread(*more: Object, **parts: Any) -> Object:
    base = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {}}
    return pod(topologySpreadConstraints=[{**base, **parts}, *more])


def host_process(pod_wide: bool | None, *containers: bool | None, **spec: Any) -> Object:
    def options(value: bool | None) -> Object:
        return {} if value is None else {"windowsOptions": {"hostProcess": value}}

    made = [container(name=f"c{i}", securityContext=options(value)) for i, value in enumerate(containers)]
    return pod(containers=made, securityContext=options(pod_wide), os={"name": "windows"}, **spec)


def annotated(annotations: dict[str, str], **spec: Any) -> Object:
    obj = pod(**spec)
    obj["metadata"]["annotations"] = annotations
    return obj


def confined(profile: Object) -> Object:
    return container(securityContext={"appArmorProfile": profile})


REFUSED = [
    (pod(os={}), "spec.os.name: Required value"),
    (pod(os={"name": "plan9"}), 'spec.os: Unsupported value: "plan9": supported values: "linux", "windows"'),
    (
        host_process(True, None, False, hostNetwork=True),
        "spec.containers[1].securityContext.windowsOptions.hostProcess: Invalid value: false: pod hostProcess value must be "
        "identical if both are specified, was true",
    ),
    (
        host_process(None, True, None, hostNetwork=True),
        'spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be HostProcess '
        "containers",
    ),
    (
        host_process(True, None),
        "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers",
    ),
    *(
        (
            pod(securityContext={"windowsOptions": {"runAsUserName": user}}),
            f"spec.securityContext.windowsOptions.runAsUserName: Invalid value: {json.dumps(user)}: {messages}",
        )
        for user, messages in (
            ("", "runAsUserName cannot be an empty string"),
            ("a\\b\\c", "runAsUserName cannot contain more than one backslash"),
            ("a\t", "runAsUserName cannot contain control characters"),
            ("CORP\\", "runAsUserName's User cannot be empty"),
            (".corp\\jo", "runAsUserName's Domain doesn't match the NetBios nor the DNS format"),
            (". .", "runAsUserName's User cannot contain only periods or spaces"),
            ("j@o", "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"),
        )
    ),
    (spread(minDomains=0), f"{SPREAD}.minDomains: Invalid value: 0: must be greater than zero"),
    (
        spread(minDomains=1, whenUnsatisfiable="ScheduleAnyway"),
        f"{SPREAD}.minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "
        "ScheduleAnyway",
    ),
    (
        spread({"maxSkew": 2, "topologyKey": "zone", "labelSelector": {}}),
        f'{SPREAD}.{{topologyKey, whenUnsatisfiable}}: Duplicate value: "{{zone, DoNotSchedule}}"',
    ),
    (
        spread(matchLabelKeys=["app"], labelSelector={"matchLabels": {"app": "web"}}) | {"metadata": LABELLED},
        f'{SPREAD}.matchLabelKeys[0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector',
    ),
    (
        annotated({COST: "1.5"}),
        f'metadata.annotations[{COST}]: Invalid value: "1.5": must be a 32bit integer',
    ),
    (
        annotated({COST: "9999999999"}),
        f'metadata.annotations[{COST}]: Invalid value: "9999999999": must be a 32bit integer',
    ),
    (
        annotated({MIRROR: "x"}),
        f'metadata.annotations[{MIRROR}]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set',
    ),
    (
        annotated({SECCOMP: "mine"}),
        f'metadata.annotations.{SECCOMP}: Invalid value: "mine": must be a valid seccomp profile',
    ),
    (
        annotated({APPARMOR + "x": "unconfined"}),
        f'metadata.annotations[{APPARMOR}x]: Invalid value: "cx": container not found',
    ),
    (
        annotated({APPARMOR: "mine"}),
        f'metadata.annotations[{APPARMOR}]: Invalid value: "mine": invalid AppArmor profile name: "mine"',
    ),
    (
        annotated({SECCOMP: "unconfined"}, securityContext={"seccompProfile": {"type": "RuntimeDefault"}}),
        "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match",
    ),
    (
        annotated({APPARMOR: "localhost/a"}, containers=[confined({"type": "Localhost", "localhostProfile": "b"})]),
        "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in annotation "
        "and field must match",
    ),
    (
        pod(ephemeralContainers=[container(name="e")]),
        "spec.ephemeralContainers: Forbidden: cannot be set on create",
    ),
    (
        pod(volumes=[{"name": "v" * 63, "ephemeral": {"volumeClaimTemplate": {}}}]) | {"metadata": {"name": "w" * 200}},
        f'spec.volumes[0].name: Invalid value: "{"v" * 63}": PVC name "{"w" * 200}-{"v" * 63}": must be no more than 253 '
        "characters",
    ),
    (
        pod(securityContext={"seLinuxChangePolicy": "Never"}),
        'spec.securityContext.seLinuxChangePolicy: Unsupported value: "Never": supported values: "Recursive"',
    ),
    (
        pod(dnsConfig={"searches": ["a_.-b"]}),
        'spec.dnsConfig.searches[0]: Invalid value: "a_.-b": a lowercase RFC 1123 subdomain must consist of lower case '
        "alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', "
        "regex used for validation is "
        r"'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
    ),
    (
        pod(hostAliases=[{"ip": "fe80::1%eth0"}]),
        'spec.hostAliases[0].ip: Invalid value: "fe80::1%eth0": must be a valid IP address, (e.g. 10.9.8.7 or '
        "2001:db8::ffff)",
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[m[:80] for _, m in REFUSED])
def test_a_bad_pod_is_refused(obj: Object, message: str) -> None:
    assert message in problems(obj)


def test_equal_annotations_and_fields_are_accepted() -> None:
    profile = {"type": "Localhost", "localhostProfile": "p/q"}
    both = annotated({SECCOMP: "localhost/p/q", COST: "-5"}, securityContext={"seccompProfile": profile})
    assert problems(both) == []
    assert problems(pod(dnsConfig={"searches": [".", "_tcp.example.com", "a_b.c."]})) == []


RUNTIME, UNCONFINED = {"type": "RuntimeDefault"}, {"type": "Unconfined"}


@pytest.mark.parametrize(
    ("annotation", "whole", "own", "stored", "warned"),
    [
        ("unconfined", None, None, UNCONFINED, True),
        ("unconfined", RUNTIME, None, UNCONFINED, True),
        ("runtime/default", RUNTIME, None, None, False),
        ("localhost/a", RUNTIME, None, {"type": "Localhost", "localhostProfile": "a"}, True),
        ("unconfined", RUNTIME, UNCONFINED, UNCONFINED, False),
        ("", RUNTIME, None, None, True),
        ("localhost/", None, None, None, True),
        ("localhost/ a", None, None, None, True),
        (f"localhost/{'a' * 4096}", None, None, None, True),
    ],
)
def test_a_containers_apparmor_annotation_counts_before_the_pods_profile(
    annotation: str, whole: Object | None, own: Object | None, stored: Object | None, warned: bool
) -> None:
    requested = annotated({APPARMOR: annotation}, containers=[confined(own) if own else container()])
    if whole:
        requested["spec"]["securityContext"] = {"appArmorProfile": whole}
    made = created(requested)
    assert (made["spec"]["containers"][0].get("securityContext") or {}).get("appArmorProfile") == stored
    messages = f'metadata.annotations[{APPARMOR}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    assert strategy_of(requested).warnings_as_sent(requested) == [messages] * warned


def test_apparmor_annotations_of_windows_pods_stay_annotations() -> None:
    requested = annotated({APPARMOR: "unconfined"}, os={"name": "windows"})
    assert "securityContext" not in created(requested)["spec"]["containers"][0]
    assert strategy_of(requested).warnings_as_sent(requested) == []


def test_profiles_and_mirrors_stay_as_they_were_made() -> None:
    mine = created(annotated({APPARMOR: "unconfined"}, containers=[confined(UNCONFINED)]))
    plain = created(pod(containers=[confined(UNCONFINED)]))
    assert update_problems(mine, plain) == [
        f"metadata.annotations[{APPARMOR}]: Forbidden: may not remove or update AppArmor annotations"
    ]
    assert update_problems(plain, mine) == [
        f"metadata.annotations[{APPARMOR}]: Forbidden: may not add AppArmor annotations"
    ]
    mirror = created(annotated({MIRROR: "x"}, nodeName="n"))
    placed = created(pod(nodeName="n"))
    assert update_problems(mirror, placed) == [
        f"metadata.annotations[{MIRROR}]: Forbidden: may not remove or update mirror pod annotation"
    ]


def test_a_status_update_changes_no_annotation_that_the_kubelet_acts_upon() -> None:
    mirror, placed = created(annotated({MIRROR: "x"}, nodeName="n")), created(pod(nodeName="n"))
    other = created(annotated({MIRROR: "y"}, nodeName="n"))
    path = f"metadata.annotations[{MIRROR}]: Forbidden:"
    for new in (placed, other):
        assert update_problems(mirror, new, "status") == [f"{path} may not remove or update mirror pod annotation"]
    assert update_problems(placed, mirror, "status") == [f"{path} may not add mirror pod annotation"]
    assert update_problems(mirror, mirror, "status") == []
    costly = created(annotated({COST: "much"}, nodeName="n"))
    assert update_problems(placed, costly, "status") == [
        f'metadata.annotations[{COST}]: Invalid value: "much": must be a 32bit integer'
    ]


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
def test_debugging_and_resizing_leave_the_metadata_as_it_was(subresource: str) -> None:
    old = created(annotated({"a": "1"}))
    new = copy.deepcopy(old)
    new["metadata"] |= {
        "annotations": {"b": "2"},
        "labels": {"app": "other"},
        "finalizers": ["example.com/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
        "managedFields": [{"manager": "m"}],
    }
    strategy_of(old).prepare_subresource(subresource, new, old)
    assert new["metadata"] == old["metadata"] | {"managedFields": [{"manager": "m"}]}


def test_an_extended_resources_claim_is_mapped_from_the_pods_containers() -> None:
    old = created(pod(containers=[container(resources={"requests": {"example.com/gpu": "1"}})]))
    path = "status.extendedResourceClaimStatus"

    def messages(**status: Any) -> list[str]:
        new = copy.deepcopy(old)
        new["status"]["extendedResourceClaimStatus"] = status
        return update_problems(old, new, "status")

    mapping = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}
    assert messages(resourceClaimName="gpus", requestMappings=[mapping]) == []
    assert messages() == [
        f"{path}.requestMappings: Required value: at least one request mapping is required",
        f"{path}.resourceClaimName: Required value",
    ]
    others = [mapping | {"containerName": "x"}, mapping | {"resourceName": "example.com/fpga"}, mapping, mapping]
    assert messages(resourceClaimName="gpus", requestMappings=others) == [
        f'{path}.requestMappings[0].containerName: Invalid value: "x": must match the name of an entry in '
        "spec.initContainers.name or spec.containers.name",
        f'{path}.requestMappings[1].resourceName: Invalid value: "example.com/fpga": must match the extended resource name '
        "of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests",
        f'{path}.requestMappings[3].containerName: Duplicate value: "c"',
        f'{path}.requestMappings[3].resourceName: Duplicate value: "example.com/gpu"',
        f'{path}.requestMappings[3].requestName: Duplicate value: "r"',
    ]
    wrong = messages(resourceClaimName="No", requestMappings=[mapping | {"requestName": "a.b"}])
    assert [each.split(": ")[0] for each in wrong] == [f"{path}.requestName", f"{path}.resourceClaimName"]


def test_an_update_reports_invalid_values_and_immutable_fields_together() -> None:
    old, new = created(pod()), created(pod())
    new["spec"]["restartPolicy"] = "Maybe"
    first, second = update_problems(old, new)
    assert first == 'spec.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"'
    assert second.startswith("spec: Forbidden: pod updates may not change fields other than ")


EPHEMERAL = [
    ({"ports": [{"containerPort": 80}]}, "ports"),
    ({"restartPolicy": "Always"}, "restartPolicy"),
    ({"resources": {"limits": {"cpu": "1"}}}, "resources"),
    ({"livenessProbe": {"exec": {"command": ["a"]}}}, "livenessProbe"),
    ({"lifecycle": {"preStop": {"exec": {"command": ["a"]}}}}, "lifecycle"),
]


@pytest.mark.parametrize(("parts", "field"), EPHEMERAL, ids=[f for _, f in EPHEMERAL])
def test_an_ephemeral_container_has_no_life_of_its_own(parts: Object, field: str) -> None:
    old, new = created(pod()), created(pod())
    new["spec"]["ephemeralContainers"] = [container(name="e", **parts)]
    messages = f"spec.ephemeralContainers[0].{field}: Forbidden: cannot be set for an Ephemeral Container"
    assert messages in update_problems(old, new, "ephemeralcontainers")


def test_static_pods_are_neither_debugged_nor_resized() -> None:
    mirror = created(annotated({MIRROR: "x"}, nodeName="n"))
    assert update_problems(mirror, mirror, "ephemeralcontainers") == [
        "[]: Forbidden: static pods do not support ephemeral containers"
    ]
    assert update_problems(mirror, mirror, "resize") == ["[]: Forbidden: static pods cannot be resized"]


def test_claims_in_a_status_are_those_of_the_pod() -> None:
    claims = [{"name": "gpu", "resourceClaimName": "g"}]
    old = created(pod(resourceClaims=claims))
    new = created(pod(resourceClaims=claims))
    new["status"]["resourceClaimStatuses"] = [{"name": "gpu"}, {"name": "gpu"}, {"name": "fpga"}]
    path = "status.resourceClaimStatuses"
    assert update_problems(old, new, "status") == [
        f'{path}[1].name: Duplicate value: "gpu"',
        f'{path}[2].name: Invalid value: "fpga": must match the name of an entry in `spec.resourceClaims`',
    ]
