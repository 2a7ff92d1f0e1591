"""Workloads of every common kind in one namespace, for tests that change what runs them: an upgrade, another version."""

from __future__ import annotations

from typing import Any

from tests.support.cluster import WEB_IMAGE, Cluster, eventually
from tests.support.kube import wait_pods
from tests.support.pods import apply, container, execute, pod, wait_running

NS = "shop"
SECRET = "a word that no file may contain"
GROUP = "shop.example.com"


def create(cluster: Cluster, pinned: str) -> None:
    """Create the workloads and wait until they run; one Deployment's pods are all on the node `pinned`."""
    cluster.kubectl("create", "namespace", NS)
    apply(cluster, NS, *_configuration(), _definition())
    cluster.kubectl("wait", "--for=condition=Established", f"crd/orders.{GROUP}", "--timeout=60s")
    apply(cluster, NS, *_workloads(pinned), *_services(), *_policies(), *(_order(number) for number in range(3)))
    wait_pods(cluster, NS, "app=web", 4)
    wait_pods(cluster, NS, "app=pinned", 1)
    wait_pods(cluster, NS, "app=db", 2)
    wait_running(cluster, NS, "friend", "stranger")
    eventually(lambda: cluster.get("jobs", "-n", NS)["items"], "the CronJob's first Job", 90)
    eventually(lambda: address(cluster, "public"), "the load balancer's address")
    for name in ("db-0", "db-1"):
        execute(cluster, NS, name, f"echo {name} > /data/written")
    eventually(lambda: not reaches(cluster, "stranger"), "the policy is in force")


def address(cluster: Cluster, name: str) -> str:
    """Return the address at which clients outside of pods reach a Service; "" if it has none yet."""
    found = cluster.get("service", name, "-n", NS)
    if found["spec"]["type"] == "LoadBalancer":
        ingress = found["status"]["loadBalancer"].get("ingress", [])
        return f"{ingress[0]['ip']}:{found['spec']['ports'][0]['port']}" if ingress else ""
    if found["spec"]["type"] == "NodePort":
        return f"{cluster.host.address}:{found['spec']['ports'][0]['nodePort']}"
    return str(found["spec"]["clusterIP"])


def reaches(cluster: Cluster, name: str) -> bool:
    """Return whether a pod reaches the Service that the NetworkPolicy protects."""
    return execute(cluster, NS, name, "timeout 2 wget -q -O - http://guarded || true") != ""


def _named(api: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}


def _configuration() -> list[dict[str, Any]]:
    return [
        _named("v1", "Secret", "password", stringData={"word": SECRET}),
        _named("v1", "ConfigMap", "settings", data={"colour": "green"}, immutable=True),
        _named("v1", "ServiceAccount", "reader"),
        _named(
            "rbac.authorization.k8s.io/v1",
            "Role",
            "reader",
            rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
        ),
        _named(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "reader",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            subjects=[{"kind": "ServiceAccount", "name": "reader", "namespace": NS}],
        ),
        _named("v1", "ResourceQuota", "limits", spec={"hard": {"pods": "50", "requests.storage": "1Gi"}}),
        _named(
            "v1", "LimitRange", "defaults", spec={"limits": [{"type": "Container", "defaultRequest": {"cpu": "5m"}}]}
        ),
        _named(
            "policy/v1",
            "PodDisruptionBudget",
            "web",
            spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        ),
        _named(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "web",
            spec={
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 4,
                "maxReplicas": 4,
            },
        ),
    ]


def _workloads(pinned: str) -> list[dict[str, Any]]:
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchLabels": {"app": "web"}}
    server = {"name": "web", "image": WEB_IMAGE, "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 1}}
    data = container("exec sleep 1d", volumeMounts=[{"name": "data", "mountPath": "/data"}])
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}}
    job = {"template": {"spec": {"restartPolicy": "Never", "containers": [container("exit 0")]}}}
    return [
        _controller("Deployment", "web", server, replicas=4, pod={"topologySpreadConstraints": [spread]}),
        _controller("Deployment", "pinned", server, pod={"nodeSelector": {"kubernetes.io/hostname": pinned}}),
        _controller(
            "StatefulSet",
            "db",
            data,
            replicas=2,
            serviceName="db",
            podManagementPolicy="Parallel",
            volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": claim}],
        ),
        _controller("DaemonSet", "each", container()),
        _named("batch/v1", "CronJob", "tick", spec={"schedule": "* * * * *", "jobTemplate": {"spec": job}}),
        pod("friend", labels={"role": "friend"}),
        pod("stranger"),
    ]


def _controller(
    kind: str, name: str, container: dict[str, Any], pod: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    labels = {"app": name}
    template = {"containers": [container], "terminationGracePeriodSeconds": 1, **(pod or {})}
    spec |= {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template}}
    return _named("apps/v1", kind, name, spec=spec)


def _services() -> list[dict[str, Any]]:
    def service(name: str, app: str, port: int = 80, **spec: Any) -> dict[str, Any]:
        ports = [{"port": port, "targetPort": 80}]
        return _named("v1", "Service", name, spec={"selector": {"app": app}, "ports": ports, **spec})

    return [
        service("web", "web"),
        service("guarded", "pinned"),
        service("ports", "web", type="NodePort"),
        service("public", "pinned", 8088, type="LoadBalancer"),
        service("db", "db", clusterIP="None"),
        _named("v1", "Service", "elsewhere", spec={"type": "ExternalName", "externalName": "example.com"}),
    ]


def _policies() -> list[dict[str, Any]]:
    friends = {"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}, {"ipBlock": {"cidr": "172.30.0.0/16"}}]}
    spec = {"podSelector": {"matchLabels": {"app": "pinned"}}, "ingress": [friends]}
    return [_named("networking.k8s.io/v1", "NetworkPolicy", "friends", spec=spec)]


def _definition() -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0, "x-kubernetes-validations": [{"rule": "self < 100"}]}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"number": number}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "orders", "singular": "order", "kind": "Order", "listKind": "OrderList"}
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]}
    return _named("apiextensions.k8s.io/v1", "CustomResourceDefinition", f"orders.{GROUP}", spec=spec)


def _order(number: int) -> dict[str, Any]:
    return _named(f"{GROUP}/v1", "Order", f"order-{number}", spec={"number": number})
