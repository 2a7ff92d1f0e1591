"""The plugins that are off unless somebody switches them on, each as its configuration and annotations have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.admission.always import AlwaysDeny
from control.admission.always_pull_images import AlwaysPullImages
from control.admission.configuration import load
from control.admission.event_rate_limit import EventRateLimit
from control.admission.extended_resource_toleration import ExtendedResourceToleration
from control.admission.hard_anti_affinity import LimitPodHardAntiAffinityTopology
from control.admission.namespace_presence import NamespaceAutoProvision, NamespaceExists
from control.admission.plugins import OFF_BY_DEFAULT, PLUGINS, PluginContext, make
from control.admission.pod_node_selector import PodNodeSelector
from control.admission.pod_resize import PodResizeValidator
from control.admission.pod_toleration_restriction import PodTolerationRestriction, covers, merge
from control.admission.resource_quota import ResourceQuota
from control.admission.webhooks.caller import Caller
from control.admission.webhooks.invoker import WebhookInvoker
from control.auth.fields import ConfigurationError
from control.auth.rbac import RBACAuthorizer
from control.interfaces.admission import Attributes, Plugin
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.clock import FakeClock
from tests.support.lookup import Objects, attributes


def pod(spec: Object | None = None, **container: Any) -> Object:
    first = {"name": "c", "image": "a:1", **container}
    return {"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": [first], **(spec or {})}}


async def through(plugin: Plugin, request: Attributes) -> str:
    """Return what a request is refused with, "" where it is not."""
    try:
        if plugin.handles(request):
            await plugin.admit(request)
            await plugin.validate(request)
    except StatusError as error:
        return error.message
    return ""


def shop(**annotations: str) -> Objects:
    return Objects(("namespaces", {"metadata": {"name": "shop", "annotations": annotations}}))


# -- pods -------------------------------------------------------------------------------------------------------------
async def test_every_container_and_image_volume_is_pulled_always() -> None:
    volume = {"name": "v", "image": {"reference": "b:1"}}
    made = pod({"initContainers": [{"name": "i", "image": "i"}], "volumes": [volume]}, imagePullPolicy="Never")
    assert await through(AlwaysPullImages(), attributes("pods", obj=made)) == ""
    spec = made["spec"]
    assert [spec["containers"][0]["imagePullPolicy"], spec["initContainers"][0]["imagePullPolicy"]] == ["Always"] * 2
    assert volume["image"]["pullPolicy"] == "Always"  # type: ignore[index]
    request = attributes("pods", obj=pod(imagePullPolicy="Never"))
    with pytest.raises(StatusError, match=r"spec\.containers\[0\]\.imagePullPolicy: Unsupported value: \"Never\""):
        await AlwaysPullImages().validate(request)


async def test_an_update_without_a_new_image_is_left_alone() -> None:
    old = pod(imagePullPolicy="Never")
    labelled = {**pod(imagePullPolicy="Never"), "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert not AlwaysPullImages().handles(attributes("pods", "UPDATE", labelled, old))
    assert AlwaysPullImages().handles(attributes("pods", "UPDATE", pod(image="a:2"), old))


async def test_a_required_anti_affinity_may_only_be_about_nodes() -> None:
    def wanting(key: str) -> Object:
        term = {"topologyKey": key, "labelSelector": {}}
        return pod({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})

    plugin = LimitPodHardAntiAffinityTopology()
    assert await through(plugin, attributes("pods", obj=wanting("kubernetes.io/hostname"))) == ""
    output = await through(plugin, attributes("pods", obj=wanting("topology.kubernetes.io/zone")))
    assert "has TopologyKey topology.kubernetes.io/zone but only key kubernetes.io/hostname is allowed" in output


async def test_a_pod_that_requests_a_device_tolerates_its_taint() -> None:
    asks = {"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
    made = pod(resources=asks)
    for _ in range(2):  # once more changes nothing
        assert await through(ExtendedResourceToleration(), attributes("pods", obj=made)) == ""
    assert made["spec"]["tolerations"] == [{"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("annotation", "reported", "has", "gets"),
    [
        ("disk=ssd", {}, {"a": "b"}, {"disk": "ssd", "a": "b"}),
        ("disk=ssd", {}, {"disk": "hdd"}, "conflicts with its namespace node label selector"),
        (None, {"clusterDefaultNodeSelector": "env=dev"}, {}, {"env": "dev"}),
        ("disk=ssd", {"clusterDefaultNodeSelector": "env=dev"}, {}, {"disk": "ssd"}),
        ("disk=ssd", {"shop": "disk=ssd,a=b"}, {"a": "b"}, {"disk": "ssd", "a": "b"}),
        ("disk=ssd", {"shop": "disk=ssd"}, {"a": "b"}, "conflict with its namespace whitelist"),
        ("disk", {}, {}, "invalid selector: [disk]"),
    ],
)
async def test_the_node_selector_of_a_namespace_restricts_its_pods(
    annotation: str | None, reported: Object, has: Object, gets: Object | str
) -> None:
    key = "scheduler.alpha.kubernetes.io/node-selector"
    plugin = PodNodeSelector(
        shop(**({key: annotation} if annotation else {})), {"podNodeSelectorPluginConfig": reported}
    )
    made = pod({"nodeSelector": has})
    output = await through(plugin, attributes("pods", obj=made))
    if isinstance(gets, str):
        assert gets in output
    else:
        assert (output, made["spec"]["nodeSelector"]) == ("", gets)


@pytest.mark.parametrize(
    "text",
    ['[{"key": 5}]', '[{"tolerationSeconds": true}]', '[{"tolerationSeconds": "5"}]', "{}", "[" * 100_000, "[1.5]"],
)
async def test_tolerations_of_a_namespace_that_do_not_fit_their_type_are_an_error(text: str) -> None:
    made = pod()
    plugin = PodTolerationRestriction(shop(**{"scheduler.alpha.kubernetes.io/defaultTolerations": text}))
    with pytest.raises(StatusError) as refused:
        await plugin.admit(attributes("pods", obj=made))
    assert refused.value.code == 500
    assert "tolerations" not in made["spec"]


async def test_a_namespace_gives_its_pods_tolerations_and_bounds_them() -> None:
    prefix = "scheduler.alpha.kubernetes.io/"
    gpu = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    objects = shop(
        **{prefix + "defaultTolerations": json.dumps([gpu]), prefix + "tolerationsWhitelist": json.dumps([gpu])}
    )
    plugin, made = PodTolerationRestriction(objects), pod()
    assert await through(plugin, attributes("pods", obj=made)) == ""
    assert made["spec"]["tolerations"] == [gpu]
    other = pod({"tolerations": [{"key": "x", "operator": "Exists"}]})
    assert "conflict with its namespace whitelist" in await through(plugin, attributes("pods", obj=other))
    reported = {"apiVersion": "podtolerationrestriction.admission.k8s.io/v1alpha1", "kind": "Configuration"}
    clusters = PodTolerationRestriction(shop(), {**reported, "whitelist": [gpu]})
    assert "conflict with its cluster whitelist" in await through(clusters, attributes("pods", obj=other))


async def test_pods_with_requests_tolerate_memory_pressure() -> None:
    made = pod(resources={"requests": {"cpu": "1"}})
    assert await through(PodTolerationRestriction(shop()), attributes("pods", obj=made)) == ""
    assert [t["key"] for t in made["spec"]["tolerations"]] == ["node.kubernetes.io/memory-pressure"]


@pytest.mark.parametrize(
    ("wide", "narrow", "is_wider"),
    [
        ({"operator": "Exists"}, {"key": "a", "value": "b"}, True),
        ({"key": "a", "operator": "Exists"}, {"key": "a", "value": "b"}, True),
        ({"key": "a", "value": "b"}, {"key": "a", "operator": "Equal", "value": "b"}, True),
        ({"key": "a", "value": "b"}, {"key": "a", "operator": "Exists"}, False),
        ({"key": "a", "operator": "Exists", "effect": "NoSchedule"}, {"key": "a", "operator": "Exists"}, False),
        (
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9},
            False,
        ),
    ],
)
def test_one_toleration_covers_another(wide: Object, narrow: Object, is_wider: bool) -> None:
    assert covers(wide, narrow) is is_wider
    if is_wider:
        assert merge([narrow, wide]) in ([wide], [narrow])


_TOLERATION = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from(["", "a", "b"]),
        "operator": st.sampled_from(["", "Equal", "Exists", "Gt"]),
        "value": st.sampled_from(["", "x", "y"]),
        "effect": st.sampled_from(["", "NoSchedule", "NoExecute"]),
        "tolerationSeconds": st.sampled_from([None, 0, 1, 2]),
    },
)


@given(st.lists(_TOLERATION, max_size=7))
def test_tolerations_that_others_cover_are_left_out_as_comparing_each_with_each_does(tolerations: list[Object]) -> None:
    merged: list[Object] = []
    for index, each in enumerate(tolerations):
        later = tolerations[index + 1 :]
        if not any(covers(other, each) for other in merged) and not any(o != each and covers(o, each) for o in later):
            merged.append(each)
    assert merge(tolerations) == merged


async def test_a_pod_is_not_resized_past_its_node() -> None:
    def sized(cpu: str) -> Object:
        return pod({"nodeName": "n"}, resources={"requests": {"cpu": cpu, "memory": "1Gi"}})

    node = {"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}, "status": {}}
    node["status"] = {"allocatable": {"cpu": "2", "memory": "4Gi"}}
    plugin = PodResizeValidator(Objects(("nodes", node)))
    request = attributes("pods", "UPDATE", sized("2"), sized("1"), subresource="resize")
    assert await through(plugin, request) == ""
    request = attributes("pods", "UPDATE", sized("3"), sized("1"), subresource="resize")
    output = await through(plugin, request)
    assert output.endswith("Node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000")


# -- namespaces, events, quota ----------------------------------------------------------------------------------------
async def test_a_missing_namespace_is_made_or_insisted_upon() -> None:
    objects, request = Objects(), attributes("configmaps", obj={"metadata": {"name": "c", "namespace": "new"}})
    assert 'namespaces "new" not found' in await through(NamespaceExists(objects), request)
    dry = attributes("configmaps", obj={"metadata": {"name": "c", "namespace": "new"}}, dry_run=True)
    assert await through(NamespaceAutoProvision(objects), dry) == "" and objects.get("namespaces", "", "new") is None
    assert await through(NamespaceAutoProvision(objects), request) == ""
    assert await through(NamespaceExists(objects), request) == ""


async def test_events_past_their_rate_are_refused_and_others_are_not() -> None:
    clock = FakeClock()
    reported = {
        "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
        "kind": "Configuration",
        "limits": [{"type": "Namespace", "qps": 1, "burst": 2}, {"type": "Server", "qps": 100, "burst": 100}],
    }
    plugin = EventRateLimit(reported, clock.monotonic)

    def event(namespace: str) -> Attributes:
        return attributes("events", obj={"metadata": {"name": "e", "namespace": namespace}})

    assert [await through(plugin, event("a")) for _ in range(2)] == ["", ""]
    assert await through(plugin, event("a")) == "Too many requests: limit reached on type Namespace for key a"
    assert await through(plugin, event("b")) == ""
    await clock.advance(1)
    assert await through(plugin, event("a")) == ""
    assert not plugin.handles(attributes("pods", obj=pod()))


async def test_the_buckets_of_events_with_long_sources_are_kept_under_short_keys() -> None:
    reported = {
        "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
        "kind": "Configuration",
        "limits": [{"type": "SourceAndObject", "qps": 1, "burst": 1}],
    }
    plugin = EventRateLimit(reported, FakeClock().monotonic)

    def event(component: str) -> Attributes:
        return attributes(
            "events", obj={"metadata": {"name": "e", "namespace": "a"}, "source": {"component": component}}
        )

    sources = ["short", *(f"{number}{'x' * 100_000}" for number in range(5))]
    for source in sources:
        assert await through(plugin, event(source)) == ""
        output = await through(plugin, event(source))
        assert output == f"Too many requests: limit reached on type SourceAndObject for key {source}"
    keys = list(plugin.limits[0]._buckets)
    assert len(keys) == len(sources) and sum(map(len, keys)) < 1000


async def test_what_is_scarce_by_configuration_needs_a_quota() -> None:
    reported = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ResourceQuotaConfiguration",
        "limitedResources": [
            {
                "resource": "pods",
                "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["cluster-services"]}],
            },
            {"resource": "persistentvolumeclaims", "matchContains": [".storageclass.storage.k8s.io/"]},
        ],
    }
    objects = Objects()
    plugin = ResourceQuota(objects, reported)
    assert await through(plugin, attributes("pods", obj=pod())) == ""
    urgent = attributes("pods", obj=pod({"priorityClassName": "cluster-services"}))
    assert "insufficient quota to match these scopes: [{PriorityClass In [cluster-services]}]" in await through(
        plugin, urgent
    )
    terms = reported["limitedResources"][0]["matchScopes"]  # type: ignore[index]
    quota = {
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": {"pods": "5"}, "scopeSelector": {"matchExpressions": terms}},
        "status": {"hard": {"pods": "5"}, "used": {"pods": "0"}},
    }
    objects.put("resourcequotas", quota)
    assert await through(plugin, urgent) == ""
    claim = {
        "metadata": {"name": "c", "namespace": "shop"},
        "spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert "insufficient quota to consume: gold.storageclass.storage.k8s.io/" in await through(
        plugin, attributes("persistentvolumeclaims", obj=claim)
    )


# -- switching on and off ---------------------------------------------------------------------------------------------
def plugin_context(reported: Object | None = None) -> PluginContext:
    objects, rbac = Objects(), RBACAuthorizer()
    return PluginContext(objects, rbac, rbac, WebhookInvoker(objects, Caller(objects), rbac), reported or {})


def test_plugins_are_switched_by_name_and_stay_in_upstreams_order() -> None:
    usual = [plugin.name for plugin in make(plugin_context())]
    assert not set(usual) & OFF_BY_DEFAULT
    simple = OFF_BY_DEFAULT - {"EventRateLimit", "ImagePolicyWebhook"}
    names = [plugin.name for plugin in make(plugin_context(), simple, ("PodSecurity",))]
    assert names == [n for n in PLUGINS if n in {*usual, *simple} - {"PodSecurity"}]
    assert names[0] == "AlwaysAdmit" and names[-1] == "AlwaysDeny"
    assert make(plugin_context(), ("NodeDeclaredFeatureValidator",))


def test_a_plugin_that_is_on_by_default_yields_to_its_own_configuration_and_to_disabling() -> None:
    def limit(qps: int) -> Object:
        limits = [{"type": "User", "qps": qps, "burst": 2}]
        return {"apiVersion": "eventratelimit.admission.k8s.io/v1alpha1", "kind": "Configuration", "limits": limits}

    def rates(reported: Object, enabled: tuple[str, ...] = (), disabled: tuple[str, ...] = ()) -> list[int]:
        plugins = make(plugin_context(reported), enabled, disabled, {"EventRateLimit": limit(7)})
        return [plugin.limits[0]._qps for plugin in plugins if isinstance(plugin, EventRateLimit)]

    assert rates({}) == rates({}, ("EventRateLimit",)) == [7]
    assert rates({"EventRateLimit": limit(1)}) == [1]
    assert rates({}, (), ("EventRateLimit",)) == []


@pytest.mark.parametrize(
    ("enabled", "disabled", "reported", "why"),
    [
        (("Nothing",), (), {}, 'enable-admission-plugins plugin "Nothing" is unknown'),
        ((), ("RBACEscalation",), {}, 'disable-admission-plugins plugin "RBACEscalation" is unknown'),
        (("AlwaysDeny",), ("AlwaysDeny",), {}, "overlapped"),
        (("EventRateLimit",), (), {}, 'admission plugin "EventRateLimit": must be a Configuration of eventratelimit'),
        (("ImagePolicyWebhook",), (), {}, 'admission plugin "ImagePolicyWebhook": imagePolicy.kubeConfigFile'),
        ((), (), {"Priority": {}}, 'admission plugin "Priority" takes no configuration'),
        ((), (), {"PodSecurity": {"kind": "X"}}, "must be a PodSecurityConfiguration"),
    ],
)
def test_what_cannot_be_meant_stops_the_server(
    enabled: tuple[str, ...], disabled: tuple[str, ...], reported: Object, why: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(plugin_context(reported), enabled, disabled)
    assert why in str(caught.value)


def test_configurations_stand_in_the_file_or_beside_it(tmp_path: Path) -> None:
    (tmp_path / "selectors.yaml").write_text("podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: a=b}\n")
    file = tmp_path / "admission.yaml"
    head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
    file.write_text(
        head + "- {name: PodNodeSelector, path: selectors.yaml}\n- {name: ResourceQuota, configuration: {a: b}}\n"
    )
    assert load(file)["PodNodeSelector"] == {"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": "a=b"}}
    assert load(file)["ResourceQuota"] == {"a": "b"} and load(None) == {}
    file.write_text(head + "- {name: PodNodeSelector, path: missing.yaml}\n")
    with pytest.raises(ConfigurationError, match=r"plugins\[0\]\.path"):
        load(file)


async def test_nothing_is_let_in_where_everything_is_denied() -> None:
    output = await through(AlwaysDeny(), attributes("configmaps", obj={"metadata": {"name": "c", "namespace": "shop"}}))
    assert output.endswith("admission control is denying all modifications")
