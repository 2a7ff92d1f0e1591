"""Defaults of a pod spec, for pods and for every template of a workload (pkg/apis/core/v1/defaults.go).

Requests default to limits, and host ports to container ports, only in pods: a template is not changed. Admission plugins set
tolerations, service accounts and priorities.
"""

from __future__ import annotations

from typing import Any

from control.registry.core.pod.resources import default_pod_resources
from kube.json_object import Object

_FILE_MODES = ("secret", "configMap", "downwardAPI", "projected")


def default_pod(obj: Object) -> None:
    """Fill in a pod's defaults."""
    spec = obj.setdefault("spec", {})
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        _requests_from_limits(container)
    default_pod_resources(spec)
    default_pod_spec(spec)
    if spec["terminationGracePeriodSeconds"] < 0:  # templates keep it (pkg/apis/core/v1/conversion.go)
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
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    # serviceAccount is the field's old name; both are kept the same.
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    for volume in spec.get("volumes") or ():
        default_volume(volume)
    for container in spec.get("initContainers") or ():
        default_container(container)
    for container in spec.get("containers") or ():
        default_container(container)
    for container in spec.get("ephemeralContainers") or ():
        default_container(container)
    for constraint in spec.get("topologySpreadConstraints") or ():
        if not constraint.get("whenUnsatisfiable"):
            constraint["whenUnsatisfiable"] = "DoNotSchedule"


def default_container(container: Object) -> None:
    if container.get("resources") is None:
        container["resources"] = {}
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = "Always" if _latest(container.get("image") or "") else "IfNotPresent"
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        _source(variable.get("valueFrom"))
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            _probe(probe)
    lifecycle = container.get("lifecycle") or {}
    for hook in (lifecycle.get("postStart"), lifecycle.get("preStop")):
        if hook and hook.get("httpGet"):
            _http_get(hook["httpGet"])


def default_volume(volume: Object) -> None:
    if not any(volume.get(source) is not None for source in volume if source != "name"):
        volume["emptyDir"] = {}
        return
    for name in _FILE_MODES:
        source = volume.get(name)
        if source is not None and source.get("defaultMode") is None:
            source["defaultMode"] = 0o644
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _source(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        token = source.get("serviceAccountToken")
        if token is not None and not token.get("expirationSeconds"):
            token["expirationSeconds"] = 3600
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _source(item)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    if volume.get("iscsi") is not None and not volume["iscsi"].get("iscsiInterface"):
        volume["iscsi"]["iscsiInterface"] = "default"
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    rbd = volume.get("rbd")
    if rbd is not None:
        for key, value in (("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")):
            if not rbd.get(key):
                rbd[key] = value
    image = volume.get("image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = "Always" if _latest(image.get("reference") or "") else "IfNotPresent"


def _latest(image: str) -> bool:
    """True if an image reference means the moving tag: no tag and no digest, or `:latest`."""
    if "@" in image:
        return False
    _, _, last = image.rpartition("/")
    _, colon, tag = last.partition(":")
    return not colon or tag == "latest"


def _source(source: Object | None) -> None:
    field = (source or {}).get("fieldRef")
    if field is not None and not field.get("apiVersion"):
        field["apiVersion"] = "v1"
    resource = (source or {}).get("resourceFieldRef")
    if resource is not None and resource.get("divisor") in (None, ""):
        resource["divisor"] = "0"
    file = (source or {}).get("fileKeyRef")
    if file is not None and file.get("optional") is None:
        file["optional"] = False


def _probe(probe: Object) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(key):
            probe[key] = value
    if probe.get("httpGet") is not None:
        _http_get(probe["httpGet"])
    if probe.get("grpc") is not None and probe["grpc"].get("service") is None:
        probe["grpc"]["service"] = ""


def _http_get(action: Object) -> None:
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"


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
