from __future__ import annotations

from typing import Any

import pytest

from tests.unit.control.registry.strategies import (
    container,
    created,
    pod,
    problems,
    workload,
)


def one(**parts: Any) -> dict[str, Any]:
    return pod(containers=[container(**parts)])


def on_exit(*codes: int) -> dict[str, Any]:
    return {"action": "Restart", "exitCodes": {"operator": "In", "values": list(codes)}}


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
        pod(hostnameOverride="a.b", setHostnameAsFQDN=True),
        "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
    ),
    (
        pod(hostnameOverride="a.b", hostNetwork=True),
        "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
    ),
    (pod(hostnameOverride="a" * 65), "spec.hostnameOverride: Too long: may not be more than 64 bytes"),
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
    (pod(hostUsers=False, hostPID=True), "spec.HostPID: Forbidden: when `hostUsers` is false"),
    (
        pod(hostUsers=False, containers=[container(volumeDevices=[{"name": "v", "devicePath": "/dev/x"}])]),
        f"{C}.volumeDevices: Forbidden: when `hostUsers` is false",
    ),
    (pod(overhead={"cpu": "-1"}), 'spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
    (
        pod(overhead={"gold": "1"}),
        'spec.overhead.limits[gold]: Invalid value: "gold": must be a standard resource for containers',
    ),
    (
        pod(overhead={"example.com/gpu": "1.5"}),
        'spec.overhead.limits[example.com/gpu]: Invalid value: "1500m": must be an integer',
    ),
    (
        pod(securityContext={"seLinuxChangePolicy": "MountOption"}),
        'spec.securityContext.seLinuxChangePolicy: Unsupported value: "MountOption": supported values: "Recursive"',
    ),
    (
        pod(runtimeClassName=""),
        'spec.runtimeClassName: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric '
        "characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
        "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    ),
    (pod(os={}), "spec.os.name: Required value"),
    (
        pod(securityContext={"fsGroupChangePolicy": ""}),
        'spec.securityContext.fsGroupChangePolicy: Unsupported value: "": supported values: "Always", "OnRootMismatch"',
    ),
    (
        one(restartPolicy="X"),
        f'{C}.restartPolicy: Unsupported value: "X": supported values: "Always", "Never", "OnFailure"',
    ),
    (
        one(restartPolicy="Never", restartPolicyRules=[on_exit(1)] * 21),
        f"{C}.restartPolicyRules: Too many: 21: must have at most 20 items",
    ),
    (
        one(restartPolicy="Never", restartPolicyRules=[on_exit(*range(256))]),
        f"{C}.restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
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
        pod(resources={"limits": {"cpu": "1"}}, os={"name": "windows"}),
        "spec.resources: Forbidden: may not be set for a windows pod",
    ),
    (
        pod(
            resources={"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}},
            containers=[
                container(name=n, resources={"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}}) for n in ("a", "b")
            ],
        ),
        'spec.resources.limits[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or equal to aggregate container '
        "limits of 4Mi",
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


def test_containers_may_request_less_than_the_limits_of_their_pod() -> None:
    spec = pod(resources={"limits": {"cpu": "1"}}, containers=[container(resources={"requests": {"cpu": "500m"}})])[
        "spec"
    ]
    assert problems({**pod(), "spec": spec}) == []
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    assert problems(workload("Deployment", template=template)) == []


def test_a_restart_rule_may_name_any_exit_code() -> None:
    assert problems(one(restartPolicy="Never", restartPolicyRules=[on_exit(-1, 256)])) == []


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
