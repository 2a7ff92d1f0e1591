"""Defaults of a pod spec, for pods and for every template of a workload (pkg/apis/core/v1/defaults.go).

Requests default to limits, and host ports to container ports, only in pods: a template is not changed. Admission plugins set
tolerations, service accounts and priorities.
"""

from __future__ import annotations

from typing import Any

from control.registry.core.pod.resources import default_pod_resources
from control.registry.defaults import Defaults, absent
from kube.json_object import Object


def default_pod(obj: Object) -> None:
    """Fill in a pod's defaults."""
    spec = obj.setdefault("spec", {})
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        _requests_from_limits(container)
    default_pod_resources(spec)
    default_pod_spec(spec)
    if spec["terminationGracePeriodSeconds"] < 0:  # templates keep a negative one (pkg/apis/core/v1/conversion.go)
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        _host_ports(spec)


def default_status(obj: Object) -> None:
    """Keep the one address and the list of addresses of a status in step; where they differ the one is right."""
    status = obj.get("status") or {}
    for one, many in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        first = status[many][0].get("ip", "") if status.get(many) else ""
        if not status.get(one) and first:
            status[one] = first
        elif status.get(one) and status[one] != first:
            status[many] = [{"ip": status[one]}]


def default_template(spec: Object) -> None:
    """Fill in the defaults of a workload's `spec.template`."""
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    default_pod_spec(template.setdefault("spec", {}))


def default_pod_spec(spec: Object) -> None:
    _POLICIES(spec)
    # serviceAccount is the field's old name; both are kept the same.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or ():
        if not any(volume.get(source) is not None for source in volume if source != "name"):
            volume["emptyDir"] = {}
    _SPEC(spec)


def _pull_policy(image: str | None) -> str:
    """Return Always for the moving tag: an image reference with no tag and no digest, or with `:latest`."""
    _, _, last = (image or "").rpartition("/")
    _, colon, tag = last.partition(":")
    moving = "@" not in (image or "") and (not colon or tag == "latest")
    return "Always" if moving else "IfNotPresent"


_POLICIES = Defaults(
    ("restartPolicy", absent("Always")),
    ("terminationGracePeriodSeconds", absent(30)),
    ("dnsPolicy", absent("ClusterFirst")),
)
_SOURCE = Defaults(
    ("fieldRef.apiVersion", "v1"),
    ("resourceFieldRef.divisor", absent("0", "")),
    ("fileKeyRef.optional", absent(False)),
)
_VOLUME = Defaults(
    ("{secret,configMap,downwardAPI,projected}.defaultMode", absent(0o644)),
    ("downwardAPI.items[*]", _SOURCE),
    ("projected.sources[*].serviceAccountToken.expirationSeconds", 3600),
    ("projected.sources[*].downwardAPI.items[*]", _SOURCE),
    ("hostPath.type", absent("")),
    ("iscsi.iscsiInterface", "default"),
    ("ephemeral.volumeClaimTemplate.spec", absent({})),
    ("ephemeral.volumeClaimTemplate.spec.volumeMode", absent("Filesystem")),
    ("rbd.pool", "rbd"),
    ("rbd.user", "admin"),
    ("rbd.keyring", "/etc/ceph/keyring"),
    ("image.pullPolicy", lambda image: _pull_policy(image.get("reference"))),
)
_HTTP_GET = Defaults(("path", "/"), ("scheme", "HTTP"))
_PROBE = Defaults(
    ("timeoutSeconds", 1),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("failureThreshold", 3),
    ("httpGet", _HTTP_GET),
    ("grpc.service", absent("")),
)
_CONTAINER = Defaults(
    ("resources", absent({})),
    ("terminationMessagePath", "/dev/termination-log"),
    ("terminationMessagePolicy", "File"),
    ("imagePullPolicy", lambda container: _pull_policy(container.get("image"))),
    ("ports[*].protocol", "TCP"),
    ("env[*].valueFrom", _SOURCE),
    ("{livenessProbe,readinessProbe,startupProbe}", _PROBE),
    ("lifecycle.{postStart,preStop}.httpGet", _HTTP_GET),
)
_SPEC = Defaults(
    ("securityContext", absent({})),
    ("schedulerName", "default-scheduler"),
    ("volumes[*]", _VOLUME),
    ("{initContainers,containers,ephemeralContainers}[*]", _CONTAINER),
    ("topologySpreadConstraints[*].whenUnsatisfiable", "DoNotSchedule"),
)


def _requests_from_limits(container: Object) -> None:
    resources: dict[str, Any] = container.get("resources") or {}
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)


def _host_ports(spec: Object) -> None:
    """With the node's network a container port is the node's port."""
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        for port in container.get("ports") or ():
            if not port.get("hostPort"):
                port["hostPort"] = port.get("containerPort", 0)
