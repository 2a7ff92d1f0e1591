"""The table of built-in resources of v1.36, for discovery, routing, printing and clients.

A row is one served version of one resource. Resources that several API groups or versions show (events,
horizontalpodautoscalers) share one place in storage.
"""

from __future__ import annotations

import functools
import importlib
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kube import names
from kube.errors import bad_request

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CREATE_ONLY = ("create",)
READ_ONLY = ("get", "list")

# Where upstream's key differs from the plural (apiserver's SpecialDefaultResourcePrefixes).
_STORAGE_NAMES = {
    "nodes": "minions",
    "services": "services/specs",
    "endpoints": "services/endpoints",
    "replicationcontrollers": "controllers",
    "ingresses": "ingress",
    "customresourcedefinitions": "apiextensions.k8s.io/customresourcedefinitions",
    "apiservices": "apiregistration.k8s.io/apiservices",
}


@dataclass(frozen=True)
class Resource:
    """One served version of a resource. `subresources` are names such as "status", "scale", "log"."""

    group: str
    version: str
    plural: str
    kind: str
    module: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # Resources are keys of what every request looks up.
        return hash((self.group, self.plural))

    @functools.cached_property
    def singular(self) -> str:
        return self.kind.lower()

    @functools.cached_property
    def list_kind(self) -> str:
        return self.kind + "List"

    @functools.cached_property
    def api_version(self) -> str:
        """An object's apiVersion: "v1", "apps/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @functools.cached_property
    def root(self) -> str:
        """The path of the group version: "/api/v1", "/apis/apps/v1"."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @functools.cached_property
    def target(self) -> str:
        """Name in messages: "pods", "deployments.apps"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def type(self) -> Any:
        """The generated Struct."""
        return _type(self.module, self.kind)

    @property
    def custom(self) -> bool:
        """True if a CustomResourceDefinition defines it: it has a schema and no generated type."""
        return False

    @functools.cached_property
    def storage_prefix(self) -> str:
        """The prefix of its keys in the store, with a slash at the end: "/registry/pods/"."""
        return f"/registry/{_STORAGE_NAMES.get(self.plural, self.plural)}/"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the collection, an object or a subresource; 400 for a name that no path can contain."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def key(self, namespace: str, name: str) -> str:
        """Return the object's key in the store: "/registry/pods/default/web-1"."""
        return f"{self.storage_prefix}{namespace}/{name}" if self.namespaced else self.storage_prefix + name


_PLAIN = re.compile(r"[A-Za-z0-9:@_~{}-][A-Za-z0-9:@_~{}.-]*")
"""Names that stand in a path as they are; braces, for templates of paths."""


def segment(name: str) -> str:
    """Return a name as one segment of a path, as client-go's Request: names in references are not always validated."""
    if _PLAIN.fullmatch(name):
        return name
    if wrong := names.path_segment(name):
        raise bad_request(f'invalid resource name "{name}": {wrong}')
    return quote(name, safe="")


@functools.cache
def _type(module: str, kind: str) -> type[Any]:
    found: type[Any] = getattr(importlib.import_module(f"kube.api.{module}"), kind)
    return found


# group/version module | plural kind | scope | short names | categories | verbs | subresources
_TABLE = """
/v1 core_v1
  bindings Binding ns verbs=create
  componentstatuses ComponentStatus cluster short=cs verbs=read
  configmaps ConfigMap ns short=cm
  endpoints Endpoints ns short=ep
  events Event ns short=ev
  limitranges LimitRange ns short=limits
  namespaces Namespace cluster short=ns verbs=single sub=status,finalize
  nodes Node cluster short=no sub=status,proxy
  persistentvolumeclaims PersistentVolumeClaim ns short=pvc sub=status
  persistentvolumes PersistentVolume cluster short=pv sub=status
  pods Pod ns short=po cat=all sub=status,binding,eviction,log,exec,attach,portforward,proxy,ephemeralcontainers,resize
  podtemplates PodTemplate ns
  replicationcontrollers ReplicationController ns short=rc cat=all sub=status,scale
  resourcequotas ResourceQuota ns short=quota sub=status
  secrets Secret ns
  serviceaccounts ServiceAccount ns short=sa sub=token
  services Service ns short=svc cat=all sub=status,proxy
admissionregistration.k8s.io/v1 admissionregistration_v1
  mutatingadmissionpolicies MutatingAdmissionPolicy cluster cat=api-extensions
  mutatingadmissionpolicybindings MutatingAdmissionPolicyBinding cluster cat=api-extensions
  mutatingwebhookconfigurations MutatingWebhookConfiguration cluster cat=api-extensions
  validatingadmissionpolicies ValidatingAdmissionPolicy cluster cat=api-extensions sub=status
  validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding cluster cat=api-extensions
  validatingwebhookconfigurations ValidatingWebhookConfiguration cluster cat=api-extensions
apiextensions.k8s.io/v1 apiextensions_v1
  customresourcedefinitions CustomResourceDefinition cluster short=crd,crds cat=api-extensions sub=status
apiregistration.k8s.io/v1 apiregistration_v1
  apiservices APIService cluster cat=api-extensions sub=status
apps/v1 apps_v1
  controllerrevisions ControllerRevision ns
  daemonsets DaemonSet ns short=ds cat=all sub=status
  deployments Deployment ns short=deploy cat=all sub=status,scale
  replicasets ReplicaSet ns short=rs cat=all sub=status,scale
  statefulsets StatefulSet ns short=sts cat=all sub=status,scale
authentication.k8s.io/v1 authentication_v1
  selfsubjectreviews SelfSubjectReview cluster verbs=create
  tokenreviews TokenReview cluster verbs=create
authorization.k8s.io/v1 authorization_v1
  localsubjectaccessreviews LocalSubjectAccessReview ns verbs=create
  selfsubjectaccessreviews SelfSubjectAccessReview cluster verbs=create
  selfsubjectrulesreviews SelfSubjectRulesReview cluster verbs=create
  subjectaccessreviews SubjectAccessReview cluster verbs=create
autoscaling/v2 autoscaling_v2
  horizontalpodautoscalers HorizontalPodAutoscaler ns short=hpa cat=all sub=status
autoscaling/v1 autoscaling_v1
  horizontalpodautoscalers HorizontalPodAutoscaler ns short=hpa cat=all sub=status
batch/v1 batch_v1
  cronjobs CronJob ns short=cj cat=all sub=status
  jobs Job ns cat=all sub=status
certificates.k8s.io/v1 certificates_v1
  certificatesigningrequests CertificateSigningRequest cluster short=csr sub=approval,status
coordination.k8s.io/v1 coordination_v1
  leases Lease ns
discovery.k8s.io/v1 discovery_v1
  endpointslices EndpointSlice ns
events.k8s.io/v1 events_v1
  events Event ns short=ev
flowcontrol.apiserver.k8s.io/v1 flowcontrol_v1
  flowschemas FlowSchema cluster sub=status
  prioritylevelconfigurations PriorityLevelConfiguration cluster sub=status
networking.k8s.io/v1 networking_v1
  ingressclasses IngressClass cluster
  ingresses Ingress ns short=ing sub=status
  ipaddresses IPAddress cluster short=ip
  networkpolicies NetworkPolicy ns short=netpol
  servicecidrs ServiceCIDR cluster sub=status
node.k8s.io/v1 node_v1
  runtimeclasses RuntimeClass cluster
policy/v1 policy_v1
  poddisruptionbudgets PodDisruptionBudget ns short=pdb sub=status
rbac.authorization.k8s.io/v1 rbac_v1
  clusterrolebindings ClusterRoleBinding cluster
  clusterroles ClusterRole cluster
  rolebindings RoleBinding ns
  roles Role ns
resource.k8s.io/v1 resource_v1
  deviceclasses DeviceClass cluster
  resourceclaims ResourceClaim ns sub=status
  resourceclaimtemplates ResourceClaimTemplate ns
  resourceslices ResourceSlice cluster
scheduling.k8s.io/v1 scheduling_v1
  priorityclasses PriorityClass cluster short=pc
storage.k8s.io/v1 storage_v1
  csidrivers CSIDriver cluster
  csinodes CSINode cluster
  csistoragecapacities CSIStorageCapacity ns
  storageclasses StorageClass cluster short=sc
  volumeattachments VolumeAttachment cluster sub=status
  volumeattributesclasses VolumeAttributesClass cluster short=vac
"""


def _read_table() -> tuple[Resource, ...]:
    verbs = {"create": CREATE_ONLY, "read": READ_ONLY, "single": tuple(v for v in ALL_VERBS if v != "deletecollection")}
    found: list[Resource] = []
    group = version = module = ""
    for line in _TABLE.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            (group, _, version), module = words[0].rpartition("/"), words[1]
            continue
        plural, kind, scope, *rest = words
        options = dict(word.split("=", 1) for word in rest)
        lists = {k: tuple(v.split(",")) for k, v in options.items()}
        found.append(
            Resource(
                group,
                version,
                plural,
                kind,
                module,
                scope == "ns",
                lists.get("short", ()),
                lists.get("cat", ()),
                verbs[options["verbs"]] if "verbs" in options else ALL_VERBS,
                lists.get("sub", ()),
            )
        )
    return tuple(found)


RESOURCES: tuple[Resource, ...] = _read_table()
_BY_GVR = {(r.group, r.version, r.plural): r for r in RESOURCES}
_BY_KIND = {(r.api_version, r.kind): r for r in RESOURCES}
_BY_CLASS = {(r.module, r.kind): r for r in RESOURCES}


def by_path(group: str, version: str, plural: str) -> Resource | None:
    """Return the resource served under a group, version and plural name."""
    return _BY_GVR.get((group, version, plural))


def by_kind(api_version: str, kind: str) -> Resource | None:
    """Return the resource of an object's apiVersion and kind."""
    return _BY_KIND.get((api_version, kind))


def of(struct: type[Any]) -> Resource:
    """Return the resource whose objects are of this Struct; KeyError where it is not a resource's type."""
    found = _OF.get(struct)
    if found is None:
        found = _OF[struct] = _BY_CLASS[(struct.__module__.rpartition(".")[2], struct.__name__)]
    return found


def register_view(struct: type[Any], whole: type[Any]) -> None:
    """Let a Struct that has only some of a type's fields be read as that type's resource; the rest is dropped unread."""
    _OF[struct] = of(whole)


def register_custom(struct: type[Any], resource: Resource) -> None:
    """Let a Struct be the type of a custom resource for clients; the server takes its schema from the definition."""
    _OF[struct] = resource


_OF: dict[type[Any], Resource] = {}
