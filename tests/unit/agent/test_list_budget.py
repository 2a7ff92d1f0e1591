"""The runtime's lists stay below the size of a message, whatever labels, annotations, ports and hooks pods have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import runtime_records
from agent.list_budget import SANDBOX_BYTES, SANDBOX_PARTS, ListBudget
from agent.podspec import containers
from agent.podspec.dns import Resolver
from agent.podspec.sandbox import metadata_warning, sandbox_config
from cri.channel import MESSAGE_BYTES
from cri.messages import (
    ContainerConfig,
    LinuxContainerResources,
    LinuxContainerSecurityContext,
    PodSandbox,
    PodSandboxConfig,
)
from kube.api import core_v1
from tests.unit.agent.pods import pod

MOST_PODS = 110
"""The default of maxPods."""


def configured(given: core_v1.Pod, **more: Any) -> PodSandboxConfig:
    return sandbox_config(
        given, 0, resolver=Resolver(), cluster_domain="c", cgroup_parent="", logs_root=Path("/logs"), **more
    )


def created(container: core_v1.Container, **more: Any) -> ContainerConfig:
    nothing = LinuxContainerSecurityContext(), LinuxContainerResources()
    return containers.container_config(
        pod(), container, 3, image_id="i", env={}, mounts=[], security=nothing[0], resources=nothing[1], **more
    )


def labelled(labels: int = 0, annotation: int = 0) -> core_v1.Pod:
    given = pod()
    given.metadata.labels = {f"label-{n}": "v" * 60 for n in range(labels)}
    given.metadata.annotations = {"large": "v" * annotation, "small": "1"}
    return given


def listed(budget: ListBudget, given: core_v1.Pod) -> PodSandbox:
    config = configured(given, share=budget.share())
    budget.created(config.labels, config.annotations)
    return PodSandbox(id="0" * 64, metadata=config.metadata, labels=config.labels, annotations=config.annotations)


def test_labels_and_annotations_of_usual_size_are_passed() -> None:
    given = labelled(20, 30_000)
    config = configured(given)
    assert given.metadata.labels.items() <= dict(config.labels).items()
    assert dict(config.annotations) == given.metadata.annotations
    assert metadata_warning(given, config) == ""


def test_a_large_annotation_is_left_out_and_the_agents_own_labels_are_passed() -> None:
    given = labelled(2, 200_000)
    given.metadata.labels[runtime_records.POD_UID] = "another's"
    config = configured(given)
    assert config.labels[runtime_records.POD_UID] == given.metadata.uid and config.labels["label-1"]
    assert dict(config.annotations) == {"small": "1"}
    assert metadata_warning(given, config).startswith("0 labels and 1 annotations of the pod are not passed")


def test_more_labels_than_fit_are_left_out_in_order() -> None:
    given = labelled(5000, 100)
    config = configured(given)
    assert config.ByteSize() < SANDBOX_BYTES + 2048
    assert "label-0" in config.labels and "label-4999" not in config.labels
    assert metadata_warning(given, config).startswith(f"{5004 - len(config.labels)} labels and ")


def test_as_many_pods_as_a_node_has_get_the_same_share() -> None:
    budget, given = ListBudget(SANDBOX_BYTES, SANDBOX_PARTS), labelled(2000)
    sizes = {listed(budget, given).ByteSize() for _ in range(MOST_PODS)}
    assert len(sizes) == 1 and MOST_PODS * sizes.pop() < MESSAGE_BYTES


def test_the_list_stays_below_a_messages_size_with_thousands_of_ended_pods() -> None:
    budget, given, entries = ListBudget(SANDBOX_BYTES, SANDBOX_PARTS), labelled(500, 100), list[PodSandbox]()
    for n in range(5000):
        entries.append(listed(budget, given))
        if n % 500 == 0:
            budget.listed(entries)
    assert sum(entry.ByteSize() for entry in entries) < MESSAGE_BYTES
    assert all(entry.labels[runtime_records.POD_UID] for entry in entries)
    budget.listed(entries[:10])
    assert budget.share() == SANDBOX_BYTES, "the ended pods were deleted"


def test_ports_and_hooks_of_usual_size_are_annotations_and_larger_ones_are_not() -> None:
    (few,) = pod({"name": "c", "image": "i", "ports": [{"containerPort": 80, "name": "http"}]}).spec.containers
    hook = {"preStop": {"exec": {"command": ["x" * 5000]}}}
    ports = [{"containerPort": n + 1} for n in range(5000)]
    (many,) = pod({"name": "c", "image": "i", "ports": ports, "lifecycle": hook}).spec.containers
    assert "http" in created(few).annotations[runtime_records.PORTS]
    assert not {runtime_records.PORTS, runtime_records.PRE_STOP} & created(many).annotations.keys()
    assert created(many).annotations[runtime_records.RESTART_COUNT] == "3"
    assert runtime_records.PORTS not in created(few, share=10).annotations


def test_a_path_of_a_message_that_cannot_be_mounted_is_no_annotation() -> None:
    (container,) = pod({"name": "c", "image": "i", "terminationMessagePath": "/" + "a/" * 5000}).spec.containers
    assert created(container).ByteSize() < 1024


@pytest.mark.parametrize(("length", "share", "kept"), [(250, 0, True), (4000, 0, False), (4000, 8192, True)])
def test_a_long_path_of_a_message_is_an_annotation_where_the_list_has_room(length: int, share: int, kept: bool) -> None:
    path = "/" + "a" * length
    (container,) = pod({"name": "c", "image": "i", "terminationMessagePath": path}).spec.containers
    assert (created(container, share=share).annotations.get(runtime_records.MESSAGE_PATH) == path) is kept
