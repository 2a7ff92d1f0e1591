"""The smallest object of every built-in kind that the server takes, by kind, or by group version and kind.

Words in capitals are put in when an object is made.
"""

from __future__ import annotations

from typing import Any

from kube.json_object import Object
from kube.resources import Resource

CONTAINERS = [{"name": "c", "image": "busybox"}]
LABELS = {"app": "x"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": CONTAINERS}}
JOB_TEMPLATE = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
SELECTOR = {"matchLabels": LABELS}
PERIOD = "2026-01-01T00:00:00.000000Z"
DEVICES = {"requests": [{"name": "r", "exactly": {"deviceClassName": "class.example.com"}}]}
SCHEMA = {"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "number", "maximum": 3}}}}
SCALE_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
RULE = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothings"]}
HOOK = {
    "name": "hook.example.com",
    "clientConfig": {"url": "https://hook.example.com/"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "failurePolicy": "Ignore",
}
CONSTRAINTS = {"resourceRules": [RULE]}

_PARTS: dict[str, Object] = {
    "ConfigMap": {"data": {"k": "v"}},
    "Endpoints": {"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}]},
    "v1/Event": {"involvedObject": {"kind": "Pod", "name": "x", "namespace": "NAMESPACE"}, "reason": "Tested"},
    "LimitRange": {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}},
    "Namespace": {},
    "Node": {},
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
    "PersistentVolume": {
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}},
    },
    "Pod": {"spec": {"containers": CONTAINERS}},
    "PodTemplate": {"template": TEMPLATE},
    "ReplicationController": {"spec": {"replicas": 0, "selector": LABELS, "template": TEMPLATE}},
    "ResourceQuota": {"spec": {"hard": {"count/nothings.example.com": "1"}}},
    "Secret": {"data": {"k": "djE="}},
    "ServiceAccount": {},
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "MutatingAdmissionPolicy": {
        "spec": {
            "matchConstraints": CONSTRAINTS,
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
        }
    },
    "MutatingAdmissionPolicyBinding": {"spec": {"policyName": "absent"}},
    "ValidatingAdmissionPolicy": {
        "spec": {"matchConstraints": CONSTRAINTS, "validations": [{"expression": "true"}], "failurePolicy": "Ignore"}
    },
    "ValidatingAdmissionPolicyBinding": {"spec": {"policyName": "absent", "validationActions": ["Warn"]}},
    "MutatingWebhookConfiguration": {"webhooks": [HOOK]},
    "ValidatingWebhookConfiguration": {"webhooks": [HOOK]},
    "CustomResourceDefinition": {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "nothings", "kind": "Nothing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": SCHEMA}],
        }
    },
    "APIService": {
        "spec": {
            "group": "elsewhere.example.com",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "service": {"namespace": "default", "name": "absent"},
            "insecureSkipTLSVerify": True,
        }
    },
    "ControllerRevision": {"revision": 1, "data": {"a": 1}},
    "DaemonSet": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
    "Deployment": {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
    "ReplicaSet": {"spec": {"replicas": 0, "selector": SELECTOR, "template": TEMPLATE}},
    "StatefulSet": {"spec": {"replicas": 0, "serviceName": "x", "selector": SELECTOR, "template": TEMPLATE}},
    "autoscaling/v2/HorizontalPodAutoscaler": {"spec": {"scaleTargetRef": SCALE_TARGET, "maxReplicas": 2}},
    "autoscaling/v1/HorizontalPodAutoscaler": {"spec": {"scaleTargetRef": SCALE_TARGET, "maxReplicas": 2}},
    "CronJob": {
        "spec": {"schedule": "* * * * *", "suspend": True, "jobTemplate": {"spec": {"template": JOB_TEMPLATE}}}
    },
    "Job": {"spec": {"suspend": True, "template": JOB_TEMPLATE}},
    "CertificateSigningRequest": {"spec": {"request": "CSR", "signerName": "example.com/x", "usages": ["client auth"]}},
    "Lease": {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 10, "renewTime": PERIOD}},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": [{"port": 80}]},
    "events.k8s.io/v1/Event": {
        "regarding": {"kind": "Pod", "name": "x", "namespace": "NAMESPACE"},
        "reason": "Tested",
        "action": "Test",
        "type": "Normal",
        "eventTime": PERIOD,
        "reportingController": "example.com/test",
        "reportingInstance": "one",
    },
    "FlowSchema": {"spec": {"priorityLevelConfiguration": {"name": "absent"}, "matchingPrecedence": 9000}},
    "PriorityLevelConfiguration": {
        "spec": {
            "type": "Limited",
            "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}},
        }
    },
    "IngressClass": {"spec": {"controller": "example.com/x"}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "x", "port": {"number": 80}}}}},
    "IPAddress": {
        "metadata": {"name": "192.0.2.7"},
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "x"}},
    },
    "NetworkPolicy": {"spec": {"podSelector": {}}},
    "ServiceCIDR": {"spec": {"cidrs": ["192.0.2.0/24"]}},
    "RuntimeClass": {"handler": "runc"},
    "PodDisruptionBudget": {"spec": {"minAvailable": 0, "selector": SELECTOR}},
    "ClusterRole": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "ClusterRoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"}},
    "Role": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "RoleBinding": {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "x"}},
    "DeviceClass": {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    "ResourceClaim": {"spec": {"devices": DEVICES}},
    "ResourceClaimTemplate": {"spec": {"spec": {"devices": DEVICES}}},
    "ResourceSlice": {
        "spec": {
            "driver": "driver.example.com",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "x",
            "devices": [{"name": "d", "attributes": {"model": {"string": "m"}}}],
        }
    },
    "PriorityClass": {"value": 7},
    "CSIDriver": {"spec": {}},
    "CSINode": {"spec": {"drivers": []}},
    "CSIStorageCapacity": {"storageClassName": "x", "capacity": "1Gi"},
    "StorageClass": {"provisioner": "example.com/x"},
    "VolumeAttachment": {
        "spec": {"attacher": "example.com", "nodeName": "x", "source": {"persistentVolumeName": "x"}},
    },
    "VolumeAttributesClass": {"driverName": "example.com", "parameters": {"k": "v"}},
}
_NAMES = {
    "CustomResourceDefinition": "nothings.example.com",
    "APIService": "v1.elsewhere.example.com",
    "IPAddress": "192.0.2.7",
}


def minimal(resource: Resource, namespace: str, number: int, certificate_request: str) -> Object:
    """Return a whole object; `number` tells those of one kind apart where their names may be chosen."""
    parts = _PARTS.get(f"{resource.api_version}/{resource.kind}") or _PARTS[resource.kind]
    meta: Object = {"name": _NAMES.get(resource.kind, f"conform-{number}"), "labels": {"conform": "yes"}}
    if resource.namespaced:
        meta["namespace"] = namespace
    obj = _filled({k: v for k, v in parts.items() if k != "metadata"}, namespace, certificate_request)
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **obj}


def _filled(value: Any, namespace: str, certificate_request: str) -> Any:
    if isinstance(value, dict):
        return {k: _filled(v, namespace, certificate_request) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(v, namespace, certificate_request) for v in value]
    return {"NAMESPACE": namespace, "CSR": certificate_request}.get(value, value) if isinstance(value, str) else value
