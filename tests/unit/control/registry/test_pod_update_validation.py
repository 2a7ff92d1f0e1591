"""Validation of updates of pods: mutable fields, resizes, ephemeral containers and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.control.registry.strategies import (
    container,
    created,
    pod,
    strategy_of,
    update_problems,
)


def changed(**spec: Any) -> dict[str, Any]:
    stored = created(pod())
    stored["spec"].update(spec)
    return stored


def test_images_deadlines_and_more_tolerations_may_change() -> None:
    old = created(pod())
    new = changed(activeDeadlineSeconds=60, tolerations=[{"operator": "Exists"}])
    new["spec"]["containers"][0]["image"] = "nginx:1.28"
    assert update_problems(old, new) == []


def test_a_pod_of_an_earlier_version_keeps_what_new_ones_may_not_have() -> None:
    devices = [{"name": "v", "devicePath": "/dev/x"}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    old = created(pod(hostUsers=False, volumes=volumes, containers=[container(volumeDevices=devices)]))
    old["spec"]["securityContext"]["seLinuxChangePolicy"] = "MountOption"
    new = {**old, "spec": {**old["spec"], "activeDeadlineSeconds": 60}}
    assert update_problems(old, new) == []


def test_anything_else_in_a_pod_may_not_change() -> None:
    (found,) = update_problems(created(pod()), changed(hostname="other"))
    assert found.startswith(
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
        "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
    )
    assert '+  hostname: "other"' in found


def test_containers_may_not_be_added_to_a_pod() -> None:
    new = changed(containers=[container(), container(name="d")])
    assert update_problems(created(pod()), new) == [
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    ]


def test_tolerations_may_not_be_taken_away() -> None:
    old = created(pod(tolerations=[{"key": "a", "operator": "Exists"}]))
    assert update_problems(old, created(pod())) == [
        "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    ]


def test_a_deadline_may_only_come_nearer() -> None:
    old = created(pod(activeDeadlineSeconds=60))
    path = "spec.activeDeadlineSeconds"
    assert update_problems(old, created(pod(activeDeadlineSeconds=90))) == [
        f"{path}: Invalid value: 90: must be less than or equal to previous value"
    ]
    assert update_problems(old, created(pod())) == [
        f"{path}: Invalid value: null: must not update from a positive integer to nil value"
    ]


def test_gates_are_only_taken_away_and_placement_may_be_narrowed_meanwhile() -> None:
    old = created(pod(schedulingGates=[{"name": "a"}]))
    assert update_problems(old, created(pod(nodeSelector={"zone": "x"}))) == []
    zoned = created(pod(schedulingGates=[{"name": "a"}], nodeSelector={"zone": "x"}))
    assert update_problems(zoned, created(pod(nodeSelector={"zone": "y"}))) == [
        'spec.nodeSelector: Invalid value: {"zone":"y"}: only additions to spec.nodeSelector are allowed (no mutations or '
        "deletions)"
    ]
    assert update_problems(created(pod()), created(pod(schedulingGates=[{"name": "b"}]))) == [
        "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'"
    ]


def test_resources_change_through_the_resize_subresource_alone() -> None:
    old = created(pod(containers=[container(resources={"requests": {"cpu": "1"}})]))
    new = created(pod(containers=[container(resources={"requests": {"cpu": "2"}})]))
    assert update_problems(old, new)[0].startswith("spec: Forbidden: pod updates may not change fields")
    assert update_problems(old, new, "resize") == []
    bare = created(pod(containers=[container(resources={})]))
    assert update_problems(old, bare, "resize") == [
        'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
        "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
    ]


def test_ephemeral_containers_are_added_through_their_subresource_and_stay() -> None:
    old = created(pod())
    new = created(pod())
    debugger = {
        "name": "debug",
        "image": "busybox:1",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }
    new["spec"]["ephemeralContainers"] = [debugger]
    assert update_problems(old, new, "ephemeralcontainers") == []
    assert update_problems(new, old, "ephemeralcontainers") == [
        'spec.ephemeralContainers: Forbidden: existing ephemeral containers "debug" may not be removed\n'
    ]


def test_an_update_of_the_whole_pod_leaves_status_alone() -> None:
    old = created(pod())
    new = created(pod())
    new["status"] = {"phase": "Failed"}
    assert update_problems(old, new) == []
    strategy_of(old).prepare_update(new, old)
    assert new["status"] == old["status"]


def ended(code: int) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}]}


@pytest.mark.parametrize(
    ("policy", "code", "refused"),
    [("Never", 0, True), ("Never", 1, True), ("OnFailure", 0, True), ("OnFailure", 1, False), ("Always", 0, False)],
)
def test_a_container_that_has_ended_for_good_never_runs_again(policy: str, code: int, refused: bool) -> None:
    old = created(pod(restartPolicy=policy))
    old["status"] |= ended(code)
    new = {**old, "status": {**old["status"], "containerStatuses": [{"name": "c", "state": {"running": {}}}]}}
    message = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
    assert update_problems(old, new, "status") == ([message] if refused else [])


def test_the_quality_of_service_and_addresses_of_a_status_are_checked() -> None:
    old = created(pod())
    new = {**old, "status": {**old["status"], "qosClass": "Guaranteed", "podIPs": [{"ip": "x"}]}}
    assert update_problems(old, new, "status") == [
        'status.qosClass: Invalid value: "Guaranteed": field is immutable',
        'status.podIPs[0]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
    ]
