from __future__ import annotations

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import container, created, pod, workload


def test_a_bare_pod_gets_upstreams_defaults() -> None:
    found = created(pod())
    assert found["spec"] == {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
        "containers": [
            {
                "name": "c",
                "image": "nginx:1.27",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
    }
    assert found["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_a_negative_grace_period_becomes_one_second_in_pods_but_not_in_templates() -> None:
    assert created(pod(terminationGracePeriodSeconds=-1))["spec"]["terminationGracePeriodSeconds"] == 1
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {**pod()["spec"], "terminationGracePeriodSeconds": -1}}
    found = created(workload("Deployment", template=template))["spec"]["template"]["spec"]
    assert found["terminationGracePeriodSeconds"] == -1


@pytest.mark.parametrize(
    ("whole", "own", "expected"),
    [
        ({"limits": {"cpu": "2"}}, {}, {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}),
        (
            {"limits": {"cpu": "2", "memory": "1Gi"}},
            {"requests": {"cpu": "500m", "ephemeral-storage": "1Gi"}},
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        ),
        (
            {"limits": {"cpu": "2"}},
            {"requests": {"memory": "512Mi"}},
            {"limits": {"cpu": "2"}, "requests": {"cpu": "2", "memory": "1Gi"}},
        ),
        ({"requests": {"cpu": "2"}}, {"requests": {"memory": "1Gi"}}, {"requests": {"cpu": "2"}}),
        (
            {"requests": {"cpu": "2"}},
            {"limits": {"hugepages-2Mi": "4Mi"}},
            {"requests": {"cpu": "2", "hugepages-2Mi": "8Mi"}, "limits": {"hugepages-2Mi": "8Mi"}},
        ),
        ({"limits": {"disk": "1"}}, {}, {"limits": {"disk": "1"}}),
    ],
)
def test_resources_of_the_whole_pod_follow_those_of_its_containers(
    whole: Object, own: Object, expected: Object
) -> None:
    containers = [container(name=name, resources=own) for name in ("a", "b")]
    assert created(pod(containers=containers, resources=whole))["spec"]["resources"] == expected


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("registry:5000/nginx", "Always"),
        ("registry:5000/nginx:2", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
        ("nginx:latest@sha256:abc", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    found = created(pod(containers=[container(image=image)]))
    assert found["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_requests_follow_limits_in_pods_but_not_in_templates() -> None:
    limited = container(resources={"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "500m"}})
    found = created(pod(containers=[limited]))["spec"]["containers"][0]["resources"]
    assert found["requests"] == {"cpu": "500m", "memory": "64Mi"}
    template = created(
        workload("Deployment", template={"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [limited]}})
    )
    assert template["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m"}


def test_probes_hooks_ports_and_sources_get_their_defaults() -> None:
    given = container(
        ports=[{"containerPort": 80}],
        livenessProbe={"httpGet": {"port": 80}},
        readinessProbe={"grpc": {"port": 9}, "periodSeconds": 3},
        lifecycle={"preStop": {"httpGet": {"port": 80}}},
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    )
    found = created(pod(containers=[given]))["spec"]["containers"][0]
    assert found["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    times = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert found["livenessProbe"] == {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, **times}
    assert found["readinessProbe"] == {"grpc": {"port": 9, "service": ""}, **times, "periodSeconds": 3}
    assert found["lifecycle"]["preStop"]["httpGet"] == {"port": 80, "path": "/", "scheme": "HTTP"}
    assert found["env"][0]["valueFrom"]["fieldRef"] == {"fieldPath": "metadata.name", "apiVersion": "v1"}


def test_volumes_get_modes_types_and_token_lifetimes() -> None:
    volumes = [
        {"name": "a"},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "hostPath": {"path": "/x"}},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "e", "emptyDir": {}},
    ]
    found = created(pod(volumes=volumes))["spec"]["volumes"]
    assert found[0] == {"name": "a", "emptyDir": {}}
    assert found[1]["secret"]["defaultMode"] == 420
    assert found[2]["hostPath"] == {"path": "/x", "type": ""}
    assert found[3]["projected"] == {
        "defaultMode": 420,
        "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
    }
    assert found[4] == {"name": "e", "emptyDir": {}}


def test_on_the_nodes_network_a_container_port_is_the_nodes_port() -> None:
    found = created(pod(hostNetwork=True, containers=[container(ports=[{"containerPort": 80}])]))
    assert found["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "hostPort": 80}]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}], "Burstable"),
        ([{"limits": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"requests": {"memory": "1Mi"}}], "Burstable"),
    ],
)
def test_the_quality_of_service_comes_from_requests_and_limits(resources: list[dict], expected: str) -> None:
    containers = [container(name=f"c{i}", resources=r) for i, r in enumerate(resources)]
    assert created(pod(containers=containers))["status"]["qosClass"] == expected


def test_a_gated_pod_has_the_condition_from_its_creation() -> None:
    found = created(pod(schedulingGates=[{"name": "example.com/wait"}]))
    assert found["status"]["conditions"][0]["reason"] == "SchedulingGated"


@pytest.mark.parametrize("place", [{"readinessProbe": {"httpGet": {}}}, {"lifecycle": {"preStop": {"httpGet": {}}}}])
def test_an_empty_http_request_of_a_probe_or_a_hook_gets_its_path_and_scheme(place: Object) -> None:
    found = created(pod(containers=[container(**place)]))["spec"]["containers"][0]
    action = found["readinessProbe"] if "readinessProbe" in place else found["lifecycle"]["preStop"]
    assert action["httpGet"] == {"path": "/", "scheme": "HTTP"}
