"""The generated types, the facts and the resource table fit each other and the wire."""

from __future__ import annotations

import json

import msgspec
import pytest

from kube import resources, schema, serialize
from kube.api import apps_v1, core_v1, networking_v1


@pytest.mark.parametrize("resource", resources.RESOURCES, ids=lambda r: f"{r.api_version}/{r.plural}")
def test_every_resource_has_a_type_with_the_facts_of_its_kind(resource: resources.Resource) -> None:
    facts = schema.facts(resource.type)
    assert facts.id.endswith(f".{resource.kind}")
    if facts.gvk:
        assert facts.gvk == (resource.group, resource.version, resource.kind)
    assert resources.of(resource.type) is resource
    assert resources.by_path(resource.group, resource.version, resource.plural) is resource


def test_names_on_the_wire_are_upstreams() -> None:
    service = core_v1.Service(spec=core_v1.ServiceSpec(cluster_ip="10.96.0.7", external_ips=["192.0.2.1"]))
    assert json.loads(serialize.encode(service))["spec"] == {"clusterIP": "10.96.0.7", "externalIPs": ["192.0.2.1"]}
    rule = networking_v1.NetworkPolicyIngressRule(from_=[networking_v1.NetworkPolicyPeer()])
    assert json.loads(serialize.encode(rule)) == {"from": [{}]}


def test_significant_empty_fields_are_kept() -> None:
    text = b'{"spec":{"volumes":[{"name":"v","emptyDir":{}}],"hostNetwork":false},"metadata":{"labels":{}}}'
    assert serialize.to_dict(serialize.decode(text, core_v1.Pod)) == {
        "metadata": {},
        "spec": {"volumes": [{"name": "v", "emptyDir": {}}], "hostNetwork": False},
        "status": {},
    }


def test_required_zeroes_are_written_as_upstream_writes_them() -> None:
    status = json.loads(serialize.encode(core_v1.ContainerStatus(name="web")))
    assert (status["restartCount"], status["ready"], status["image"]) == (0, False, "")


def test_null_is_taken_for_absent_where_go_does() -> None:
    text = b'{"metadata":{"creationTimestamp":null,"labels":null},"spec":{"template":{"spec":{"containers":null}}}}'
    deployment = serialize.decode(text, apps_v1.Deployment)
    assert deployment.spec.template.spec.containers == []
    assert deployment.metadata.labels == {}


def test_a_wrong_type_is_named_with_its_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int \| null`, got `str` - at `\$.spec.replicas`"):
        serialize.decode(b'{"spec":{"replicas":"three"}}', apps_v1.Deployment)


def test_facts_contain_how_lists_merge() -> None:
    containers = schema.facts(core_v1.PodSpec).field("containers")
    assert (containers.merge_key, containers.strategy, containers.list_type, containers.list_keys) == (
        "name",
        "merge",
        "map",
        ("name",),
    )
    ports = schema.facts(core_v1.ServiceSpec).field("ports")
    assert ports.list_keys == ("port", "protocol")
    assert schema.facts(core_v1.Container).field("args").list_type == "atomic"


def test_keys_and_paths_are_upstreams() -> None:
    by = {r.plural: r for r in resources.RESOURCES}
    assert by["pods"].key("default", "web") == "/registry/pods/default/web"
    assert by["nodes"].key("", "n1") == "/registry/minions/n1"
    assert by["services"].key("default", "web") == "/registry/services/specs/default/web"
    assert by["deployments"].path("default", "web", "scale") == "/apis/apps/v1/namespaces/default/deployments/web/scale"
    assert by["pods"].path() == "/api/v1/pods"
