"""Allocations in claims and pods: devices with their configuration and nodes, claims for extended resources."""

from __future__ import annotations

import msgspec
import pytest

from control.controllers.resource_claims.generated_claims import base_name, claim_from
from control.scheduler.devices.check import Check, ClusterDevices
from control.scheduler.devices.extended import ExtendedResources, claim_for, device_requests, is_claim_of
from control.scheduler.devices.requests import claim_to_allocate
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1

from .clusters import pod
from .devices import DRIVER, Devices, claim, class_of, device, node, read, request, slice_of


def opaque(**parameters: object) -> dict[str, object]:
    return {"opaque": {"driver": DRIVER, "parameters": parameters}}


def test_classes_configuration_comes_first_and_the_claims_own_after_it() -> None:
    devices = Devices(slice_of(device("a"), device("b")), class_of("gpu", config=[opaque(mode="class")]))
    everywhere, for_x = opaque(level=1), {**opaque(level=2), "requests": ["x"]}
    found = devices.allocate(claim(request("x"), request("y"), config=[everywhere, for_x]))
    assert found.devices is not None
    assert [(c.source, c.requests, c.opaque.parameters) for c in found.devices.config if c.opaque] == [
        ("FromClass", ["x"], {"mode": "class"}),
        ("FromClass", ["y"], {"mode": "class"}),
        ("FromClaim", [], {"level": 1}),
        ("FromClaim", ["x"], {"level": 2}),
    ]


def test_configuration_of_an_alternative_that_was_not_taken_is_left_out() -> None:
    parts = [
        {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": c}
        for name, c in (("many", 2), ("one", 1))
    ]
    configs = [{**opaque(of=name), "requests": [f"r/{name}"]} for name in ("many", "one")]
    found = Devices(slice_of(device("a")), class_of()).allocate(
        claim({"name": "r", "firstAvailable": parts}, config=configs)
    )
    assert found.devices is not None and [c.requests for c in found.devices.config] == [["r/one"]]


def requirement(key: str, *values: str) -> dict[str, object]:
    return {"key": key, "operator": "In", "values": list(values)}


def chosen(*requirements: dict[str, object]) -> dict[str, object]:
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}}


@pytest.mark.parametrize(
    ("slices", "selector"),
    [
        ([slice_of(device("a"))], [("metadata.name", ["worker-1"])]),
        ([slice_of(device("a"), allNodes=True)], None),
        ([slice_of(device("a"), **chosen(requirement("rack", "r1")))], [("rack", ["r1"])]),
        (
            [
                slice_of(device("a"), name="s1", pool="p1", **chosen(requirement("rack", "r1"))),
                slice_of(
                    device("b"), name="s2", pool="p2", **chosen(requirement("rack", "r1"), requirement("row", "1"))
                ),
            ],
            [("rack", ["r1"]), ("row", ["1"])],
        ),
        (
            [slice_of(device("a"), name="s1", pool="p1"), slice_of(device("b"), name="s2", pool="p2", allNodes=True)],
            [("metadata.name", ["worker-1"])],
        ),
        ([slice_of(device("a", bindsToNode=True), allNodes=True)], [("metadata.name", ["worker-1"])]),
    ],
)
def test_the_allocation_has_a_node_selector_for_its_devices(slices, selector) -> None:
    wanted = claim(request(count=len(slices)))
    found = Devices(*slices, class_of()).allocate(wanted, node(rack="r1", row="1")).node_selector
    if selector is None:
        assert found is None
    else:
        [term] = found.node_selector_terms
        assert [(r.key, r.values) for r in [*term.match_expressions, *term.match_fields]] == selector


# -- extended resources -----------------------------------------------------------------------------------------------
GPU = "example.com/gpu"


def asking(name: str, number: int, always: bool = False) -> core_v1.Container:
    resources = core_v1.ResourceRequirements(requests={"cpu": "1", GPU: number} if number else {"cpu": "1"})
    return core_v1.Container(name=name, resources=resources, restart_policy="Always" if always else None)


@pytest.mark.parametrize(
    ("init", "main", "requests", "mappings"),
    [
        ([], [asking("a", 2)], {"container-0-request-1": 2}, [("a", "container-0-request-1")]),
        (
            [],
            [asking("a", 1), asking("idle", 0), asking("b", 1)],
            {"container-0-request-1": 1, "container-2-request-1": 1},
            [("a", "container-0-request-1"), ("b", "container-2-request-1")],
        ),
        # What the main container will have is enough for the one that runs before it ...
        (
            [asking("i", 1)],
            [asking("a", 2)],
            {"container-1-request-1": 2},
            [("a", "container-1-request-1"), ("i", "container-1-request-1")],
        ),
        # ... or part of what that one needs.
        (
            [asking("i", 3)],
            [asking("a", 2)],
            {"container-1-request-1": 2, "container-0-request-1": 1},
            [("a", "container-1-request-1"), ("i", "container-1-request-1"), ("i", "container-0-request-1")],
        ),
        # A sidecar that runs already keeps what it has.
        (
            [asking("side", 1, always=True), asking("i", 1)],
            [asking("a", 0)],
            {"container-0-request-1": 1, "container-1-request-1": 1},
            [("side", "container-0-request-1"), ("i", "container-1-request-1")],
        ),
    ],
)
def test_containers_have_one_device_request_each_and_init_containers_reuse_free_ones(
    init, main, requests, mappings
) -> None:
    asked = core_v1.Pod(spec=core_v1.PodSpec(init_containers=init, containers=main))
    found = device_requests(asked, {GPU: "gpu"})
    assert {r.name: r.exactly.count for r in found.requests if r.exactly} == requests
    assert [(m.container_name, m.request_name) for m in found.mappings] == mappings


def test_a_claim_for_extended_resources_belongs_to_its_pod() -> None:
    asked = pod("a" * 60)
    made = claim_for(asked, [])
    assert made.metadata.generate_name == "a" * 37 + "-extended-resources-"
    assert is_claim_of(made, asked) and not is_claim_of(made, pod("other"))
    [owner] = made.metadata.owner_references
    for change in ({"namespace": "evil"}, {"owner_references": [msgspec.structs.replace(owner, kind="Job")]}):
        others = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, **change))
        assert not is_claim_of(others, asked), "anybody may name a pod's UID"


def test_of_classes_for_one_resource_the_newest_stands_for_it() -> None:
    classes = [class_of(name, extendedResourceName=GPU) for name in ("old", "new", "also-new")]
    for one, second in zip(classes, (1, 2, 2), strict=True):
        one.metadata.creation_timestamp = f"2026-01-01T00:00:0{second}Z"
    resources = ExtendedResources()
    assert resources.update(classes) and not resources.update(list(reversed(classes)))
    assert resources.class_of(GPU) == "also-new"
    assert resources.class_of("deviceclass.resource.kubernetes.io/old") == "old"
    assert resources.backs(["cpu", GPU]) and not resources.backs(["cpu"])


# -- claims from templates --------------------------------------------------------------------------------------------
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: large-black-cat-claim-template, namespace: default}
spec:
  metadata: {labels: {kept: a-label}, annotations: {kept: a-note}}
  spec:
    devices:
      requests:
      - name: req-0
        exactly:
          deviceClassName: resource.example.com
          allocationMode: ExactCount
          count: 1
          selectors:
          - cel:
              expression: |-
                device.attributes["resource-driver.example.com"].color == "black" &&
                device.attributes["resource-driver.example.com"].size == "large"
"""


def test_a_claim_from_the_documentations_template_finds_the_cat_that_it_describes() -> None:
    [template] = read(TEMPLATE)
    owner = pod("pod-with-cats")
    made = claim_from(owner, core_v1.PodResourceClaim(name="cat-0"), template)
    assert made.metadata.generate_name == "pod-with-cats-cat-0-"
    assert made.metadata.labels == {"kept": "a-label"}
    assert made.metadata.annotations == {"kept": "a-note", "resource.kubernetes.io/pod-claim-name": "cat-0"}
    [reference] = made.metadata.owner_references
    assert (reference.kind, reference.uid, reference.controller) == ("Pod", "uid-pod-with-cats", True)
    cats = slice_of(
        device("small-white", {"color": "white", "size": "small"}),
        device("large-black", {"color": "black", "size": "large"}),
        driver="resource-driver.example.com",
    )
    made.metadata.uid = "uid"
    of_cats = class_of("resource.example.com", 'device.driver == "resource-driver.example.com"')
    assert Devices(cats, of_cats).names(made) == ["large-black"]


@pytest.mark.parametrize(
    ("owner", "entry", "name"),
    [("web", "gpu", "web-gpu-"), ("w" * 60, "gpu", f"{'w' * 52}-gp"), ("w" * 60, "g" * 60, f"{'w' * 28}-{'g' * 28}")],
)
def test_long_names_are_cut_in_proportion(owner: str, entry: str, name: str) -> None:
    assert base_name(owner, entry) == name
    assert len(name) <= 57


# -- which node -------------------------------------------------------------------------------------------------------
def test_the_node_with_what_is_preferred_gets_more_points() -> None:
    large = slice_of(device("l", {"size": "large"}), name="s2", pool="p2", nodeName="worker-2")
    devices = Devices(slice_of(device("s", {"size": "small"}), name="s1", pool="p1"), large, class_of())
    preferring = {"name": "r", "firstAvailable": [alternative("large"), alternative("small")]}
    state = ClusterDevices(devices.allocated, devices.inventory, classes=devices.classes)
    check = Check(
        state,
        PodInfo(pod("p")),
        [claim_to_allocate(claim(preferring), devices.classes)],
        [],
        by_devices=False,
        stale=False,
    )
    places = [NodeInfo(node(name)) for name in ("worker-1", "worker-2", "worker-3")]
    rejections = [check.filter(place) for place in places]
    assert [rejection and rejection.reasons for rejection in rejections] == [
        None,
        None,
        ("cannot allocate all claims",),
    ]
    assert check.score(places[:2]) == [87, 100]  # of the second choice, seven eighths


def alternative(size: str) -> dict[str, object]:
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].size == "{size}"'}}
    return {"name": size, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [selector]}


def test_a_pod_goes_only_where_the_devices_it_shares_are() -> None:
    devices, shared = Devices(slice_of(device("a")), class_of()), claim(request())
    devices.allocate(shared)
    check = Check(
        ClusterDevices(devices.allocated, devices.inventory),
        PodInfo(pod("p")),
        [],
        [shared],
        by_devices=False,
        stale=False,
    )
    assert check.filter(NodeInfo(node("worker-1"))) is None
    elsewhere = check.filter(NodeInfo(node("worker-2")))
    assert elsewhere is not None and elsewhere.reasons == ("resourceclaim not available on the node",)
    assert elsewhere.unresolvable and check.score([]) is None
