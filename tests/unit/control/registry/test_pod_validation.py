from __future__ import annotations

from typing import Any

import pytest

from tests.unit.control.registry.strategies import (
    container,
    created,
    pod,
    problems,
    strategy_of,
    update_problems,
    workload,
)


def one(**parts: Any) -> dict[str, Any]:
    return pod(containers=[container(**parts)])


LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
C = "spec.containers[0]"
F = f"{C}.env[0].valueFrom.fileKeyRef"


def of_file(**parts: Any) -> dict[str, Any]:
    reference = {"volumeName": "v", "path": "conf/app.env", "key": "K", **parts}
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/etc"}}]
    return pod(containers=[container(env=[{"name": "A", "valueFrom": {"fileKeyRef": reference}}])], volumes=volumes)


REFUSED = [
    (pod(containers=[]), "spec.containers: Required value"),
    (pod(containers=[{"name": "c"}]), f"{C}.image: Required value"),
    (pod(containers=[{"image": "x"}]), f"{C}.name: Required value"),
    (one(name="Web"), f'{C}.name: Invalid value: "Web": {LABEL}'),
    (one(image=" nginx"), f'{C}.image: Invalid value: " nginx": must not have leading or trailing whitespace'),
    (pod(containers=[container(), container()]), 'spec.containers[1].name: Duplicate value: "c"'),
    (pod(initContainers=[container()]), 'spec.initContainers[0].name: Duplicate value: "c"'),
    (
        one(imagePullPolicy="Sometimes"),
        f'{C}.imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"',
    ),
    (
        pod(restartPolicy="Maybe"),
        'spec.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"',
    ),
    (one(ports=[{}]), f"{C}.ports[0].containerPort: Required value"),
    (
        one(ports=[{"containerPort": 70000}]),
        f"{C}.ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    (
        one(ports=[{"containerPort": 1, "protocol": "ICMP"}]),
        f'{C}.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"',
    ),
    (
        one(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
        f'{C}.ports[1].name: Duplicate value: "a"',
    ),
    (
        one(ports=[{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]),
        f'{C}.ports[1].hostPort: Duplicate value: "TCP//9"',
    ),
    (
        one(resources={"limits": {"cpu": "100m"}, "requests": {"cpu": "200m"}}),
        f'{C}.resources.requests: Invalid value: "200m": must be less than or equal to cpu limit of 100m',
    ),
    (
        one(resources={"limits": {"cpu": "-1"}}),
        f'{C}.resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ),
    (
        one(resources={"limits": {"gold": "1"}}),
        f'{C}.resources.limits[gold]: Invalid value: "gold": must be a standard resource type or fully qualified',
    ),
    (one(env=[{"value": "x"}]), f"{C}.env[0].name: Required value"),
    (
        one(env=[{"name": "A", "valueFrom": {}}]),
        f'{C}.env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, '
        "`secretKeyRef` or `fileKeyRef`",
    ),
    (of_file(path="../x"), f"{F}.path: Invalid value: \"../x\": must not contain '..'"),
    (of_file(path="a/../../etc/shadow"), f"{F}.path: Invalid value: \"a/../../etc/shadow\": must not contain '..'"),
    (of_file(path=""), f"{F}.path: Required value"),
    (of_file(key=""), f"{F}.key: Required value"),
    (
        of_file(key="a=b"),
        f'{F}.key: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters '
        "other than '='",
    ),
    (of_file(volumeName=""), f"{F}.volumeName: Required value"),
    (of_file(volumeName="V_"), f'{F}.volumeName: Invalid value: "V_": {LABEL}'),
    (of_file(volumeName="other"), f'{F}.volumeName: Not found: "other"'),
    (
        of_file(volumeName="host"),
        f'{F}.volumeName: Invalid value: "host": referenced volume must be of type emptyDir',
    ),
    (
        one(env=[{"name": "A", "value": "x", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        f'{C}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
    ),
    (
        one(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.magic"}}}]),
        f'{C}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.magic": error converting fieldPath: field label not '
        "supported: spec.magic",
    ),
    (
        one(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]),
        f'{C}.env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "status.phase": supported values: "metadata.name", '
        '"metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", '
        '"status.hostIPs", "status.podIP", "status.podIPs"',
    ),
    (
        one(env=[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}]),
        f'{C}.env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor\'s values 1m and 1 are '
        "supported with the cpu resource",
    ),
    (one(envFrom=[{}]), f'{C}.envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`'),
    (one(volumeMounts=[{"name": "v", "mountPath": "/v"}]), f'{C}.volumeMounts[0].name: Not found: "v"'),
    (
        pod(
            volumes=[{"name": "v"}],
            containers=[container(volumeMounts=[{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a"}])],
        ),
        f'{C}.volumeMounts[1].mountPath: Invalid value: "/a": must be unique',
    ),
    (
        pod(
            volumes=[{"name": "v"}],
            containers=[container(volumeMounts=[{"name": "v", "mountPath": "/a", "subPath": "../b"}])],
        ),
        f"{C}.volumeMounts.subPath: Invalid value: \"../b\": must not contain '..'",
    ),
    (
        pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
        "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
    ),
    (pod(volumes=[{"name": "v"}, {"name": "v"}]), 'spec.volumes[1].name: Duplicate value: "v"'),
    (pod(volumes=[{"name": "v", "secret": {}}]), "spec.volumes[0].secret.secretName: Required value"),
    (
        pod(volumes=[{"name": "v", "configMap": {"name": "c", "defaultMode": 4096}}]),
        "spec.volumes[0].configMap.defaultMode: Invalid value: 4096: must be a number between 0 and 0777 (octal), both "
        "inclusive",
    ),
    (
        pod(
            volumes=[
                {
                    "name": "v",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]},
                }
            ]
        ),
        "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 5: may not specify a "
        "duration less than 10 minutes",
    ),
    (one(livenessProbe={}), f"{C}.livenessProbe: Required value: must specify a handler type"),
    (
        one(livenessProbe={"exec": {"command": ["a"]}, "successThreshold": 2}),
        f"{C}.livenessProbe.successThreshold: Invalid value: 2: must be 1",
    ),
    (
        one(readinessProbe={"tcpSocket": {"port": 80}, "terminationGracePeriodSeconds": 5}),
        f"{C}.readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
    ),
    (one(livenessProbe={"exec": {}}), f"{C}.livenessProbe.exec.command: Required value"),
    (
        pod(initContainers=[container(name="i", lifecycle={"preStop": {"exec": {"command": ["a"]}}})]),
        "spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
    ),
    (
        pod(securityContext={"seccompProfile": {"type": "Localhost"}}),
        "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
    ),
    (
        one(securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": ""}}),
        f"{C}.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
    ),
    (
        one(securityContext={"seccompProfile": {"type": "RuntimeDefault", "localhostProfile": "x"}}),
        f'{C}.securityContext.seccompProfile.localhostProfile: Invalid value: {{"type":"RuntimeDefault","localhostProfile":'
        '"x"}: can only be set when seccomp type is Localhost',
    ),
    (
        one(securityContext={"runAsUser": -1}),
        f"{C}.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ),
    (
        pod(tolerations=[{"operator": "Equal", "value": "x"}]),
        'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means '
        '"match all values and all keys"',
    ),
    (
        pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}]),
        "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
    ),
    (
        pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must "
        "have at least one node selector term",
    ),
    (
        pod(affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}),
        "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can "
        "not be empty",
    ),
    (
        pod(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "zone"}]),
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
    ),
    (pod(dnsPolicy="None"), "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
    (
        pod(dnsConfig={"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]}),
        'spec.dnsConfig.nameservers: Invalid value: ["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4"]: must not have more than 3 '
        "nameservers",
    ),
    (
        pod(hostAliases=[{"ip": "somewhere"}]),
        'spec.hostAliases[0].ip: Invalid value: "somewhere": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
    ),
    (pod(hostname="a.b"), 'spec.hostname: Invalid value: "a.b": must not contain dots'),
    (
        pod(activeDeadlineSeconds=0),
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ),
    (
        pod(hostNetwork=True, containers=[container(ports=[{"containerPort": 80, "hostPort": 81}])]),
        f"{C}.ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
    ),
    (
        pod(volumes=[{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
        "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName "
        "is not set",
    ),
    (
        pod(os={"name": "windows"}, hostPID=True),
        "spec.hostPID: Forbidden: cannot be set for a windows pod",
    ),
    (
        pod(os={"name": "linux"}, securityContext={"windowsOptions": {}}),
        "spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
    ),
    (
        pod(
            resources={"requests": {"cpu": "1"}},
            containers=[container(name=n, resources={"requests": {"cpu": "700m"}}) for n in ("a", "b")],
        ),
        'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of '
        "1400m",
    ),
    (
        one(resources={"limits": {"hugepages-2Mi": "4Mi"}}),
        f"{C}.resources: Forbidden: HugePages require cpu or memory",
    ),
    (
        one(resources={"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}}),
        f'{C}.resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi',
    ),
    (
        one(resources={"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}),
        f'{C}.resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2',
    ),
    (
        one(resources={"claims": [{"name": "gpu"}]}),
        f'{C}.resources.claims[0]: Not found: "gpu": must be one of the names in pod.spec.resourceClaims which is empty',
    ),
    (
        one(securityContext={"procMount": "Unmasked"}),
        f'{C}.securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`',
    ),
    (
        pod(resourceClaims=[{"name": "gpu"}]),
        'spec.resourceClaims[0]: Invalid value: {"name":"gpu"}: must specify one of: `resourceClaimName`, '
        "`resourceClaimTemplateName`",
    ),
    (
        pod(schedulingGates=[{"name": "a"}], nodeName="n"),
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[m[:70] for _, m in REFUSED])
def test_a_bad_pod_is_refused_in_upstreams_words(obj: dict[str, Any], message: str) -> None:
    assert message in problems(obj)


def test_a_variable_may_come_from_a_file_of_an_empty_dir() -> None:
    assert problems(of_file()) == []


def test_a_path_with_dots_in_names_leads_nowhere_else() -> None:
    assert problems(of_file(path="a..b/..c/.env")) == []


@pytest.mark.parametrize("kind", ["initContainers", "ephemeralContainers"])
def test_other_kinds_of_containers_are_checked_for_the_files_volume(kind: str) -> None:
    env = [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "no", "path": "x", "key": "K"}}}]
    found = problems(pod(**{kind: [{"name": "d", "image": "x", "env": env}]}))
    assert f'spec.{kind}[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: "no"' in found


def test_a_pod_with_everything_is_accepted() -> None:
    assert (
        problems(
            pod(
                volumes=[
                    {"name": "a", "emptyDir": {"sizeLimit": "1Gi"}},
                    {"name": "b", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p/q", "mode": 256}]}},
                    {
                        "name": "d",
                        "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]},
                    },
                    {"name": "e", "persistentVolumeClaim": {"claimName": "x"}},
                ],
                containers=[
                    container(
                        ports=[{"containerPort": 80, "name": "http"}],
                        env=[
                            {"name": "A", "value": "b"},
                            {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                            {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                        ],
                        resources={"limits": {"cpu": "1", "example.com/gpu": 1}, "requests": {"cpu": "500m"}},
                        volumeMounts=[{"name": "a", "mountPath": "/a"}],
                        livenessProbe={"httpGet": {"port": "http"}},
                        lifecycle={"preStop": {"sleep": {"seconds": 5}}},
                        securityContext={"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False},
                    )
                ],
                initContainers=[
                    container(name="side", restartPolicy="Always", readinessProbe={"exec": {"command": ["a"]}})
                ],
                tolerations=[{"operator": "Exists"}, {"key": "a", "effect": "NoExecute", "tolerationSeconds": 5}],
                nodeSelector={"kubernetes.io/os": "linux"},
            )
        )
        == []
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
    new["spec"]["containers"][0]["image"] = "other:1"
    assert update_problems(old, new, "resize") == ["spec: Forbidden: only cpu and memory resources are mutable"]
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


def test_a_templates_host_ports_may_be_left_to_its_pods() -> None:
    found = workload(
        "Deployment",
        template={
            "metadata": {"labels": {"app": "web"}},
            "spec": {"hostNetwork": True, "containers": [container(ports=[{"containerPort": 80}])]},
        },
    )
    assert "hostPort" not in created(found)["spec"]["template"]["spec"]["containers"][0]["ports"][0]
    assert problems(found) == []
