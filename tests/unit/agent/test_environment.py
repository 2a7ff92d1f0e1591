"""Environment variables of containers: references, sources, Services, and limits."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from agent.podspec import environment
from kube.api import core_v1, meta_v1
from tests.unit.agent.pods import pod


# -- environment ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1y2z"),
        ("$$(A)", "$(A)"),
        ("$(NONE)", "$(NONE)"),
        ("$A", "$A"),
        ("$", "$"),
        ("$$", "$"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("$$$(A)", "$1"),
    ],
)
def test_references_are_expanded_as_upstream_does(text: str, expanded: str) -> None:
    assert environment.expand(text, {"A": "1", "B": "2"}) == expanded


class Objects:
    def __init__(self, maps: dict[str, dict[str, str]], secrets: dict[str, dict[str, str]]) -> None:
        self.maps, self.secrets = maps, secrets

    def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap | None:
        return core_v1.ConfigMap(data=self.maps[name]) if name in self.maps else None

    def secret(self, namespace: str, name: str) -> core_v1.Secret | None:
        if name not in self.secrets:
            return None
        return core_v1.Secret(data={k: base64.b64encode(v.encode()).decode() for k, v in self.secrets[name].items()})


def _env(container: dict[str, Any], **services: str) -> dict[str, str]:
    given = pod({"name": "main", **container})
    around = environment.EnvironmentSources(Objects({"m": {"K": "v"}}, {"s": {"P": "w"}}), services)
    return environment.environment(given, given.spec.containers[0], around)


def test_env_wins_over_env_from_which_wins_over_services() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "m"}}, {"secretRef": {"name": "s"}, "prefix": "S_"}],
        "env": [{"name": "K", "value": "own $(S_P) $(WEB_PORT)"}],
    }
    found = _env(container, K="service", WEB_PORT="80", OTHER="x")
    assert found == {"S_P": "w", "K": "own w 80", "WEB_PORT": "80", "OTHER": "x"}


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "no"}}]}, 'configmap "no" not found'),
        ({"envFrom": [{"secretRef": {"name": "no"}}]}, 'secret "no" not found'),
        (
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "no"}}}]},
            "couldn't find key no in ConfigMap default/m",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s", "key": "no"}}}]},
            "couldn't find key no in Secret default/s",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.no"}}}]},
            "unsupported fieldPath: spec.no",
        ),
        (
            {
                "env": [
                    {
                        "name": "X",
                        "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k", "optional": True}},
                    }
                ]
            },
            'cannot find the volume "v" referenced by FileKeyRef',
        ),
    ],
)
def test_what_is_missing_is_named(container: dict[str, Any], message: str) -> None:
    with pytest.raises(environment.ContainerConfigError, match=f"^{message.replace('(', '.').replace(')', '.')}$"):
        _env(container)


@pytest.mark.parametrize(
    ("own", "whole", "expected"),
    [
        ({}, {}, {"cpu": "8", "memory": "1024", "hugepages-2Mi": "0"}),
        ({}, {"cpu": "1250m", "memory": "64Mi", "hugepages-2Mi": "2Mi"}, {"cpu": "2", "memory": str(64 * 2**20)}),
        ({}, {"cpu": "1250m"}, {"cpu": "2", "memory": "1024", "hugepages-2Mi": "0"}),
        ({"cpu": "0", "memory": "1Ki"}, {"cpu": "3", "memory": "64Mi"}, {"cpu": "3", "memory": "1024"}),
    ],
)
def test_a_missing_limit_is_the_pods_or_else_the_nodes(
    own: dict[str, str], whole: dict[str, str], expected: Any
) -> None:
    asked = {n: {"valueFrom": {"resourceFieldRef": {"resource": f"limits.{n}"}}} for n in expected}
    container = {"name": "main", "resources": {"limits": own}, "env": [{"name": n, **e} for n, e in asked.items()]}
    given = pod(container, resources={"limits": whole})
    allocatable = {"cpu": "8", "memory": "1024", "hugepages-2Mi": "4Mi"}
    around = environment.EnvironmentSources(Objects({}, {}), {}, allocatable=allocatable)
    assert environment.environment(given, given.spec.containers[0], around) == expected


def test_services_of_the_namespace_become_variables_in_both_forms() -> None:
    def service(name: str, namespace: str, address: str, *ports: tuple[str, int]) -> core_v1.Service:
        return core_v1.Service(
            metadata=meta_v1.ObjectMeta(name=name, namespace=namespace),
            spec=core_v1.ServiceSpec(
                cluster_ip=address, ports=[core_v1.ServicePort(name=n or None, port=p) for n, p in ports]
            ),
        )

    services = [
        service("kubernetes", "default", "10.96.0.1", ("https", 443)),
        service("my-web", "shop", "10.96.0.7", ("http", 80)),
        service("headless", "shop", "None", ("", 1)),
        service("other", "elsewhere", "10.96.0.8", ("", 1)),
    ]
    found = environment.service_variables(environment.linked_services(services, "shop", links=True))
    assert found["MY_WEB_SERVICE_HOST"] == "10.96.0.7" and found["MY_WEB_SERVICE_PORT_HTTP"] == "80"
    assert found["MY_WEB_PORT_80_TCP"] == found["MY_WEB_PORT"] == "tcp://10.96.0.7:80"
    assert found["KUBERNETES_SERVICE_PORT"] == "443" and not any(k.startswith(("HEADLESS", "OTHER")) for k in found)
    assert set(environment.service_variables(environment.linked_services(services, "shop", links=False))) == {
        k for k in found if k.startswith("KUBERNETES")
    }


def test_an_environment_that_names_a_large_value_often_is_refused() -> None:
    refer = {"valueFrom": {"configMapKeyRef": {"name": "large", "key": "k"}}}
    given = pod({"name": "c", "env": [{"name": f"V{number}", **refer} for number in range(300)]})
    large = core_v1.ConfigMap(data={"k": "x" * 2**20})

    class Large:
        def config_map(self, namespace: str, name: str) -> core_v1.ConfigMap:
            return large

        def secret(self, namespace: str, name: str) -> None:
            return None

    around = environment.EnvironmentSources(Large(), {})
    with pytest.raises(environment.ContainerConfigError, match="the environment has more than 4194304 characters"):
        environment.environment(given, given.spec.containers[0], around)
    bulk = pod({"name": "c", "envFrom": [{"configMapRef": {"name": "large"}}] * 5})
    with pytest.raises(environment.ContainerConfigError, match="the environment has more than"):
        environment.environment(bulk, bulk.spec.containers[0], around)
