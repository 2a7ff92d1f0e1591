"""Each controller works under its own name and within its own role: a workload for all of them, looked at by the authorizer.

Controllers and scheduler run in the server's process as `wherry up` has them. That none of them was refused anything is
asserted at the end of every test that uses `api_server` (tests/support/permissions.py).
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from control.controllers import pod_gc
from control.controllers.identities import ACCOUNTS, MANAGER, POLICY_CHECKER, SCHEDULER, account_user
from kube import pki
from kube.api import apps_v1, batch_v1, coordination_v1, core_v1
from kube.errors import StatusError
from kube.resources import by_kind
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import HollowNodes, eventually, running

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: Metadata\n"
WORKLOAD = """
kind: Deployment
metadata: {name: web}
spec: &web
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: &pod
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 10m}}}]}
---
kind: DaemonSet
metadata: {name: each}
spec:
  selector: {matchLabels: {app: each}}
  template: {metadata: {labels: {app: each}}, spec: {containers: [{name: c, image: i}]}}
---
kind: StatefulSet
metadata: {name: ordered}
spec:
  serviceName: ordered
  selector: {matchLabels: {app: ordered}}
  template: {metadata: {labels: {app: ordered}}, spec: {containers: [{name: c, image: i}]}}
---
kind: ReplicationController
metadata: {name: old}
spec: {replicas: 1, selector: {app: old}, template: {metadata: {labels: {app: old}}, spec: {containers: [{name: c, image: i}]}}}
---
kind: Job
metadata: {name: once}
spec: {ttlSecondsAfterFinished: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 8123}]}
---
kind: Service
metadata: {name: manual}
spec: {ports: [{port: 80}]}
---
kind: Endpoints
metadata: {name: manual}
subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]
---
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 2, maxReplicas: 3}
---
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}
---
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: disks
  csi: {driver: disk.csi.test, volumeHandle: h}
---
kind: StorageClass
metadata: {name: disks}
provisioner: disk.csi.test
allowVolumeExpansion: true
---
kind: CSIDriver
metadata: {name: disk.csi.test}
spec: {attachRequired: true}
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: disks, resources: {requests: {storage: 1Gi}}}
---
kind: StorageClass
metadata: {name: folders}
provisioner: wherry/local-path
allowVolumeExpansion: true
---
kind: PersistentVolume
metadata: {name: folder, annotations: {pv.kubernetes.io/provisioned-by: wherry/local-path}}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: folders
  local: {path: /var/lib/none}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: none, operator: DoesNotExist}]}]}}
---
kind: PersistentVolumeClaim
metadata: {name: folder}
spec: {accessModes: [ReadWriteOnce], storageClassName: folders, resources: {requests: {storage: 1Gi}}}
---
kind: Pod
metadata: {name: with-disk}
spec:
  containers: [{name: c, image: i}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
---
kind: Pod
metadata: {name: with-scratch}
spec:
  containers: [{name: c, image: i}]
  volumes:
  - name: tmp
    ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}
---
kind: VolumeAttributesClass
metadata: {name: fast}
driverName: disk.csi.test
parameters: {iops: "1"}
---
kind: DeviceClass
metadata: {name: cards}
spec: {selectors: [{cel: {expression: 'device.driver == "driver.example.com"'}}]}
---
kind: ResourceSlice
metadata: {name: cards-of-n0}
spec:
  driver: driver.example.com
  nodeName: n0
  pool: {name: n0, generation: 1, resourceSliceCount: 1}
  devices: [{name: card}]
---
kind: ResourceClaimTemplate
metadata: {name: card}
spec: {spec: {devices: {requests: [{name: card, exactly: {deviceClassName: cards}}]}}}
---
kind: Pod
metadata: {name: with-card}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: card}]}}]
  resourceClaims: [{name: card, resourceClaimTemplateName: card}]
---
kind: Pod
metadata: {name: nowhere, finalizers: [example.com/wait]}
spec: {nodeSelector: {nowhere: "yes"}, containers: [{name: c, image: i}]}
---
kind: Namespace
metadata: {name: leaving}
---
kind: CronJob
metadata: {name: daily}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
---
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data: {kubeconfig: "{}"}
---
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-signing: "true"}
---
kind: Secret
metadata: {name: bootstrap-token-aaaaaa, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: aaaaaa, token-secret: 0123456789abcdef, expiration: "2020-01-01T00:00:00Z"}
---
kind: Secret
metadata: {name: token, annotations: {kubernetes.io/service-account.name: default}}
type: kubernetes.io/service-account-token
---
kind: ValidatingAdmissionPolicy
metadata: {name: odd}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: object.spec.replicas < 100}]
---
kind: ResourceQuota  # the last one: pods are refused until it has a status
metadata: {name: few}
spec: {hard: {pods: "100", count/configmaps: "100"}}
"""
WORK = {
    "addon-controller": ("patch", "configmaps"),
    "service-account-controller": ("create", "serviceaccounts"),
    "legacy-service-account-token-cleaner": ("get", "configmaps"),
    "root-ca-cert-publisher": ("create", "configmaps"),
    "replicaset-controller": ("create", "pods"),
    "replication-controller": ("update", "replicationcontrollers/status"),
    "deployment-controller": ("create", "replicasets.apps"),
    "daemon-set-controller": ("create", "controllerrevisions.apps"),
    "statefulset-controller": ("update", "statefulsets.apps/status"),
    "job-controller": ("update", "jobs.batch/status"),
    "endpointslice-controller": ("create", "endpointslices.discovery.k8s.io"),
    "endpointslicemirroring-controller": ("create", "endpointslices.discovery.k8s.io"),
    "endpoint-controller": ("create", "endpoints"),
    "service-controller": ("patch", "services/status"),
    "namespace-controller": ("update", "namespaces/finalize"),
    "pod-garbage-collector": ("delete", "pods"),
    "node-controller": ("patch", "nodes"),
    "generic-garbage-collector": ("delete", "replicasets.apps"),
    "certificate-controller": ("update", "certificatesigningrequests.certificates.k8s.io/status"),
    "bootstrap-signer": ("update", "configmaps"),
    "token-cleaner": ("delete", "secrets"),
    "clusterrole-aggregation-controller": ("update", "clusterroles.rbac.authorization.k8s.io"),
    "cronjob-controller": ("update", "cronjobs.batch/status"),
    "ttl-after-finished-controller": ("delete", "jobs.batch"),
    "horizontal-pod-autoscaler": ("update", "deployments.apps/scale"),
    "disruption-controller": ("update", "poddisruptionbudgets.policy/status"),
    "persistent-volume-binder": ("update", "persistentvolumes"),
    "attachdetach-controller": ("create", "volumeattachments.storage.k8s.io"),
    "expand-controller": ("update", "persistentvolumeclaims/status"),
    "local-path-provisioner": ("create", "storageclasses.storage.k8s.io"),
    "gateway-controller": ("patch", "gatewayclasses.gateway.networking.k8s.io/status"),
    "ephemeral-volume-controller": ("create", "persistentvolumeclaims"),
    "service-cidrs-controller": ("patch", "servicecidrs.networking.k8s.io"),
    "pvc-protection-controller": ("update", "persistentvolumeclaims"),
    "pv-protection-controller": ("update", "persistentvolumes"),
    "volumeattributesclass-protection-controller": ("update", "volumeattributesclasses.storage.k8s.io"),
    "resource-claim-controller": ("create", "resourceclaims.resource.k8s.io"),
    "device-taint-eviction-controller": ("delete", "pods"),
    "resourcequota-controller": ("update", "resourcequotas/status"),
    POLICY_CHECKER: ("update", "validatingadmissionpolicies.admissionregistration.k8s.io/status"),
    MANAGER.name: ("update", "secrets"),
    SCHEDULER.name: ("create", "pods/binding"),
}
"""A write (for one of them a read) that each component does for the workload."""


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiUnderTest]:
    monkeypatch.setattr(pod_gc, "PERIOD_SECONDS", 0.5)
    (tmp_path / "policy.yaml").write_text(POLICY)
    audit = {"audit_policy_file": tmp_path / "policy.yaml", "audit_log_file": tmp_path / "audit.log"}
    (tmp_path / "addons").mkdir(mode=0o700)
    (tmp_path / "addons" / "board.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: board}\n")
    (tmp_path / "addons" / "board.yaml").chmod(0o600)
    audit["addons_dir"] = tmp_path / "addons"
    async with api_server(tmp_path, enable_controllers=True, enable_scheduler=True, gateway=True, **audit) as server:
        client = server.client()
        nodes = HollowNodes(client)
        nodes.behave = lambda pod: (
            ("Succeeded", False) if (pod.metadata.labels or {}).get("job-name") else ("Running", True)
        )
        async with running(nodes.run()):
            await nodes.register("n0")
            attaches = {"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
            await client.patch(core_v1.Node, "n0", "", attaches)
            address = {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]}}
            await client.patch(core_v1.Node, "n0", "", address, subresource="status")
            await eventually(lambda: client.get(core_v1.ServiceAccount, "default", "default"))
            await eventually(lambda: has(server, "local-path-provisioner"))
            yield server


def has(server: ApiUnderTest, who: str) -> bool:
    """Return whether a component has done its part."""
    return WORK[who] in server.permissions.allowed(who)


async def apply(server: ApiUnderTest, text: str) -> None:
    for obj in yaml.safe_load_all(text):
        versions = (
            "v1",
            "apps/v1",
            "batch/v1",
            "autoscaling/v2",
            "policy/v1",
            "storage.k8s.io/v1",
            "resource.k8s.io/v1",
        )
        versions += ("admissionregistration.k8s.io/v1",)
        resource = next(r for v in versions if (r := by_kind(v, obj["kind"])))
        place = obj["metadata"].get("namespace", "default") if resource.namespaced else ""
        obj["apiVersion"] = resource.api_version
        answer = await server.request("POST", resource.path(place), obj)
        assert answer.status == 201, answer.body


async def test_every_controller_does_its_work_as_itself(server: ApiUnderTest, tmp_path: Path) -> None:
    client = server.client()
    await apply(server, WORKLOAD)
    for path, body in (
        ("/api/v1/namespaces/default/pods/nowhere", None),
        ("/api/v1/namespaces/leaving", None),
        ("/apis/storage.k8s.io/v1/volumeattributesclasses/fast", None),
    ):
        assert (await server.request("DELETE", path, body)).status == 200
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "namespace": "default", "uid": "1"}
    await client.patch(batch_v1.CronJob, "daily", "default", {"status": {"active": [reference]}}, subresource="status")
    request = base64.b64encode(pki.new_request(pki.new_key(), "jane", ("dev",))).decode()
    signer = {"signerName": "kubernetes.io/kube-apiserver-client", "request": request, "usages": ["client auth"]}
    csr = {"metadata": {"name": "jane"}, "spec": signer}
    assert (await server.request("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", csr)).status == 201
    await server.kubectl("certificate", "approve", "jane")

    # What needs something to be there first: claims that grow and go, a device that breaks, an owner that goes.
    async def bound(name: str) -> bool:
        return (await client.get(core_v1.PersistentVolumeClaim, name, "default")).status.phase == "Bound"

    async def runs(name: str) -> bool:
        return (await client.get(core_v1.Pod, name, "default")).status.phase == "Running"

    await eventually(lambda: bound("folder"))
    grown = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    await client.patch(core_v1.PersistentVolumeClaim, "folder", "default", grown)
    await eventually(lambda: runs("with-card"))
    taint = [{"op": "add", "path": "/spec/devices/0/taints", "value": [{"key": "broken", "effect": "NoExecute"}]}]
    headers = {"Content-Type": "application/json-patch+json"}
    path = "/apis/resource.k8s.io/v1/resourceslices/cards-of-n0"
    assert (await server.request("PATCH", path, json.dumps(taint).encode(), headers=headers)).status == 200
    await eventually(lambda: has(server, "horizontal-pod-autoscaler"))
    await eventually(lambda: has(server, "attachdetach-controller"))
    await client.delete(apps_v1.Deployment, "web", "default", propagation="Background")
    await client.delete(core_v1.Pod, "with-disk", "default", grace_period_seconds=0)
    await client.delete(core_v1.PersistentVolumeClaim, "data", "default")
    await eventually(lambda: has(server, "pvc-protection-controller"))
    await client.delete(core_v1.PersistentVolume, "disk")

    def idle() -> list[str]:
        return [who for who in WORK if not has(server, who)]

    with contextlib.suppress(TimeoutError):
        await eventually(lambda: not idle(), within=30)
    assert idle() == []
    assert WORK.keys() == {*ACCOUNTS.values(), POLICY_CHECKER, MANAGER.name, SCHEDULER.name}
    written = {
        q.target
        for q in server.permissions.received
        if q.who == MANAGER.name and q.verb not in ("list", "watch", "get")
    }
    assert written == {"secrets", "serviceaccounts", "leases.coordination.k8s.io"}

    # What clients see of it: accounts, leases, field managers, the audit log.
    async def accounts() -> bool:
        found = (await client.list(core_v1.ServiceAccount, "kube-system")).items
        return {account.metadata.name for account in found} >= {*ACCOUNTS.values(), POLICY_CHECKER}

    await eventually(accounts)
    for lease in ("kube-controller-manager", "kube-scheduler"):
        held = await client.get(coordination_v1.Lease, lease, "kube-system")
        assert {entry.manager for entry in held.metadata.managed_fields} == {lease}
    pod = (await client.list(core_v1.Pod, "default", label_selector="app=ordered")).items[0]
    assert "kube-controller-manager" in {entry.manager for entry in pod.metadata.managed_fields}
    users = {MANAGER.name, SCHEDULER.name, *(account_user(a).name for a in (*ACCOUNTS.values(), POLICY_CHECKER))}
    users.discard(account_user("legacy-service-account-token-cleaner").name)

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]

    def writers() -> set[str]:
        return {e["user"]["username"] for e in events() if e["verb"] in ("create", "update", "patch", "delete")}

    await eventually(lambda: writers() >= users)
    [made] = {e["userAgent"].partition("/")[0] for e in events() if e["user"]["username"].endswith(":job-controller")}
    assert made == "kube-controller-manager"
    masters = [e for e in events() if "system:masters" in e["user"].get("groups", ())]
    assert {e["user"]["username"] for e in masters} <= {"kubernetes-admin", "system:apiserver"}


@pytest.mark.parametrize(
    ("account", "method", "path"),
    [
        ("replicaset-controller", "GET", "/api/v1/namespaces/kube-system/secrets"),
        ("replicaset-controller", "GET", "/api/v1/namespaces/kube-system/secrets/any"),
        ("job-controller", "DELETE", "/api/v1/nodes/n0"),
        ("deployment-controller", "DELETE", "/api/v1/namespaces/default/pods/any"),
        ("clusterrole-aggregation-controller", "DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/edit"),
    ],
)
async def test_a_controller_is_refused_what_is_not_in_its_role(
    tmp_path: Path, account: str, method: str, path: str
) -> None:
    async with api_server(tmp_path) as server:
        with pytest.raises(StatusError) as raised:
            await server.account(account).call(method, path)
        assert raised.value.code == 403
        assert f'User "system:serviceaccount:kube-system:{account}" cannot' in str(raised.value)
        assert len(server.permissions.refused) == 1
        server.permissions.refused.clear()
