"""A simulated pod that names ConfigMaps, in a time that the test sets: it waits for them as with a kubelet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.wherry.testing.test_simulated_pod import Site
from wherry.testing.nodes.scripts import Exit, PullError, Run


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "nginx", **fields}


def of_volume(**source: Any) -> dict[str, Any]:
    mounts = [{"name": "v", "mountPath": "/v"}]
    return {"volumes": [{"name": "v", **source}], "containers": [container(volumeMounts=mounts)]}


ENV_FROM = [{"configMapRef": {"name": "cfg"}}]
ENV = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "a"}}}]


@pytest.mark.parametrize("fields", [{"env": ENV}, {"envFrom": ENV_FROM}])
def test_a_container_waits_for_the_config_map_of_its_environment(fields: dict[str, Any]) -> None:
    site = Site(Exit(1), Run(), containers=[container(**fields)])
    waiting = site.state().waiting
    assert waiting is not None
    assert (waiting.reason, waiting.message) == ("CreateContainerConfigError", 'configmap "cfg" not found')
    assert site.stepped.status.pod_ip and site.stepped.status.phase == "Pending"
    assert site.events == ['Failed: Error: configmap "cfg" not found']
    site.run(2)
    assert len(site.events) == 2 and site.pod.misses_objects
    site.references.config_maps["cfg"] = {"a": "1"}
    site.pod.retry()
    site.step()
    status = site.stepped.status.container_statuses[0]
    assert status.restart_count == 1, "both steps of the script follow"
    assert status.state is not None and status.state.running is not None and not site.pod.misses_objects


def test_a_key_that_is_missing_is_named() -> None:
    site = Site(containers=[container(env=ENV)])
    site.references.config_maps["cfg"] = {}
    site.run(1)
    waiting = site.state().waiting
    assert waiting is not None and waiting.message == "couldn't find key a in ConfigMap default/cfg"


@pytest.mark.parametrize(
    "source",
    [
        {"configMap": {"name": "cfg"}},
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "cfg"}}]}},
    ],
)
def test_a_pod_waits_for_the_config_map_of_a_volume(source: dict[str, Any]) -> None:
    site = Site(**of_volume(**source))
    waiting = site.state().waiting
    assert waiting is not None and waiting.reason == "ContainerCreating"
    assert site.events == ['FailedMount: MountVolume.SetUp failed for volume "v" : configmap "cfg" not found']
    assert not site.stepped.status.pod_ip
    site.run(4)
    assert len(site.events) == 4  # after 0.5, 1 and 2 seconds
    site.references.config_maps["cfg"] = {"a": "1"}
    site.pod.retry()
    assert site.step().status.phase == "Running"
    del site.references.config_maps["cfg"]
    site.pod.instances.kill("main")
    site.step()
    assert site.state().running is not None, "what is mounted stays mounted"
    site.pod.lose_power()
    site.step()
    assert site.events[-1].startswith("FailedMount: ") and site.pod.misses_objects


def test_a_key_of_a_volume_that_is_missing_is_named() -> None:
    site = Site(**of_volume(configMap={"name": "cfg", "items": [{"key": "b", "path": "b"}]}))
    site.references.config_maps["cfg"] = {"a": "1"}
    site.run(1)
    assert site.events[-1].endswith('volume "v" : configmap references non-existent config key: b')


def test_what_is_optional_is_not_waited_for() -> None:
    optional: dict[str, Any] = {"name": "cfg", "optional": True}
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {**optional, "key": "a"}}}]
    fields = of_volume(configMap=optional)
    fields["containers"][0] |= {"env": env, "envFrom": [{"configMapRef": optional}]}
    assert Site(**fields).stepped.status.phase == "Running"


def test_a_volume_that_no_container_uses_is_not_waited_for() -> None:
    site = Site(volumes=[{"name": "v", "configMap": {"name": "cfg"}}])
    assert site.stepped.status.phase == "Running"


def test_an_image_is_pulled_before_the_configuration_is_checked() -> None:
    site = Site(PullError(), Run(), containers=[container(env=ENV)])
    assert site.events == ['Failed: Failed to pull image "nginx": not found']
    site.run(10)
    assert site.events[-1] == 'Failed: Error: configmap "cfg" not found'
    waiting = site.state().waiting
    assert waiting is not None and waiting.reason == "CreateContainerConfigError"


def test_a_pod_that_waits_for_a_volume_can_be_deleted() -> None:
    site = Site(**of_volume(configMap={"name": "cfg"}))
    assert site.delete().delete and not site.pod.misses_objects
