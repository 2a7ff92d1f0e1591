"""The part of every object that the server itself keeps: names, uid, times, generation, deletion marks, finalizers.

Pure functions on JSON-shaped dicts, called by the generic path; the rules and messages are those of apiserver's
registry/rest (create.go, update.go) and apimachinery's validation of ObjectMeta.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from control.registry.finalizers import validate_finalizers
from kube import errors, names
from kube.clock import format_time
from kube.errors import FieldError
from kube.json_object import Object
from kube.resources import Resource
from kube.uid import new_uid


class NameErrors(Protocol):
    """A kind's rule for names and, with `prefix`, for the generateName of its objects."""

    def __call__(self, name: str, *, prefix: bool) -> list[str]: ...


"""(name, whether it is a generateName prefix) -> what is wrong with it."""

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
LONGEST_GENERATED_BASE = 63 - SUFFIX_LENGTH
TOTAL_ANNOTATIONS_LIMIT = 256 * 1024

# The kinds whose metadata.generation upstream's strategies keep.
_WITH_GENERATION = frozenset(
    {
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "daemonsets.apps",
        "replicationcontrollers",
        "jobs.batch",
        "cronjobs.batch",
        "pods",
        "ingresses.networking.k8s.io",
        "ingressclasses.networking.k8s.io",
        "networkpolicies.networking.k8s.io",
        "poddisruptionbudgets.policy",
        "endpointslices.discovery.k8s.io",
        "priorityclasses.scheduling.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "resourceslices.resource.k8s.io",
        "deviceclasses.resource.k8s.io",
    }
)


def keeps_generation(resource: Resource) -> bool:
    """Return whether a resource's objects carry metadata.generation."""
    return resource.target in _WITH_GENERATION


def check_url_name(name: str) -> None:
    """Refuse a name from a URL that could leave its place in the store (`..`, `%2f`)."""
    if problems := names.path_segment(name):
        raise errors.bad_request(f'Name parameter invalid: "{name}": {";".join(problems)}')


def check_url_namespace(namespace: str) -> None:
    """Refuse a namespace from a URL that could leave its place in the store."""
    if problems := names.path_segment(namespace):
        raise errors.bad_request(f'Namespace parameter invalid: "{namespace}": {";".join(problems)}')


def match_namespace(resource: Resource, metadata: Object, namespace: str) -> None:
    """Make the body's namespace the URL's, none for a cluster-scoped object; raises 400 if they contradict."""
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    match_request(metadata, namespace)
    metadata["namespace"] = namespace


def match_request(metadata: Object, namespace: str) -> None:
    """Refuse a body that names another namespace than its URL does: 400."""
    if metadata.get("namespace") not in (None, "", namespace):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def match_name(metadata: Object, name: str, namespace: str) -> None:
    """Check an update's body against its URL."""
    given = metadata.get("name")
    if not given:
        raise errors.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    other = metadata.get("namespace")
    if namespace and other and other != namespace:
        raise errors.bad_request(
            f"the namespace of the object ({other}) does not match the namespace on the request ({namespace})"
        )


def generate_name(base: str, rng: Callable[[], float] = random.random) -> str:
    """Return a base name with five random letters and digits behind it."""
    suffix = "".join(SUFFIX_ALPHABET[int(rng() * len(SUFFIX_ALPHABET))] for _ in range(SUFFIX_LENGTH))
    return base[:LONGEST_GENERATED_BASE] + suffix


def fill_new(metadata: Object, now: datetime) -> None:
    """Set what the server gives every new object, and remove what a client may not set."""
    for part in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation", "resourceVersion"):
        metadata.pop(part, None)
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = format_time(now)


def carry_over(metadata: Object, old: Object) -> None:
    """Give an update what its author may leave out and cannot remove."""
    for part in ("uid", "creationTimestamp"):
        if not metadata.get(part) and old.get(part):
            metadata[part] = old[part]
    for part in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if part in old and metadata.get(part) is None:
            metadata[part] = old[part]
    if "generation" in old:
        metadata["generation"] = old["generation"]
    else:
        metadata.pop("generation", None)
    metadata.pop("selfLink", None)


def validate(resource: Resource, metadata: Object, name_errors: NameErrors) -> list[FieldError]:
    """Return what is wrong with an object's metadata; `name_errors` is the kind's rule for names."""
    found: list[FieldError] = []
    base = metadata.get("generateName")
    if base:
        for problem in name_errors(base, prefix=True):
            found.append(errors.invalid_value("metadata.generateName", base, problem))
    name = metadata.get("name")
    if not name:
        found.append(errors.required("metadata.name", "name or generateName is required"))
    else:
        for problem in name_errors(name, prefix=False):
            found.append(errors.invalid_value("metadata.name", name, problem))
    if resource.namespaced:
        namespace = metadata.get("namespace")
        if not namespace:
            found.append(errors.required("metadata.namespace"))
        else:
            for problem in names.dns1123_label(namespace):
                found.append(errors.invalid_value("metadata.namespace", namespace, problem))
    for key, value in (metadata.get("labels") or {}).items():
        for problem in names.qualified_name(key):
            found.append(errors.invalid_value("metadata.labels", key, problem))
        for problem in names.label_value(value):
            found.append(errors.invalid_value("metadata.labels", value, problem))
    found += validate_annotations(metadata.get("annotations") or {})
    found += _validate_owners(metadata.get("ownerReferences") or [])
    return found + validate_finalizers(metadata.get("finalizers") or [], resource)


def validate_annotations(annotations: dict[str, str]) -> list[FieldError]:
    """Return what is wrong with the annotations of an object."""
    found: list[FieldError] = []
    total = 0
    for key, value in annotations.items():
        for problem in names.qualified_name(key.lower()):
            found.append(errors.invalid_value("metadata.annotations", key, problem))
        total += len(key.encode()) + len(value.encode())
    if total > TOTAL_ANNOTATIONS_LIMIT:
        found.append(
            FieldError("metadata.annotations", "Too long", f"may not be more than {TOTAL_ANNOTATIONS_LIMIT} bytes")
        )
    return found


def _validate_owners(owners: list[Object]) -> list[FieldError]:
    found: list[FieldError] = []
    controller = ""
    where = "metadata.ownerReferences"
    for owner in owners:
        api_version = owner.get("apiVersion") or ""
        if api_version.count("/") > 1 or not api_version.rpartition("/")[2]:
            found.append(errors.invalid_value(f"{where}.apiVersion", api_version, "version must not be empty"))
        for part in ("kind", "name", "uid"):
            if not owner.get(part):
                found.append(errors.invalid_value(f"{where}.{part}", "", "must not be empty"))
        if (api_version, owner.get("kind")) == ("v1", "Event"):
            found.append(errors.invalid_value(where, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            if controller:
                found.append(
                    errors.invalid_value(
                        where,
                        owners,
                        "Only one reference can have Controller set to true. Found "
                        f'"true" in references for {controller} and {owner.get("kind")}/{owner.get("name")}',
                    )
                )
            else:
                controller = f"{owner.get('kind')}/{owner.get('name')}"
    return found


_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def validate_update(resource: Resource, metadata: Object, old: Object, name_errors: NameErrors) -> list[FieldError]:
    """Return what is wrong with a change of metadata."""
    found = [
        errors.invalid_value(f"metadata.{part}", metadata.get(part), "field is immutable")
        for part in _IMMUTABLE
        if metadata.get(part) != old.get(part)
    ]
    if old.get("deletionTimestamp"):
        before = set(old.get("finalizers") or [])
        added = [f for f in metadata.get("finalizers") or [] if f not in before]
        if added:
            shown = ", ".join(f'"{f}"' for f in added)
            found.append(
                errors.forbidden_field(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new finalizers "
                    f"[]string{{{shown}}}",
                )
            )
    if found and all(e.path == "metadata.finalizers" for e in found):
        return found
    parts = ("labels", "annotations", "ownerReferences", "finalizers", "generateName", "name", "namespace")
    if [part for part in parts if metadata.get(part) != old.get(part)]:
        found += [e for e in validate(resource, metadata, name_errors) if e not in found]
    return found


def spec_changed(obj: Object, old: Object) -> bool:
    """Return whether anything but metadata and status differs, which is what generation counts."""
    return any(obj.get(part) != old.get(part) for part in {*obj, *old} - {"metadata", "status", "apiVersion", "kind"})


def precondition(resource: Resource, metadata: Object, preconditions: Object | None) -> None:
    """Raise 409 if a delete's or an update's preconditions do not hold."""
    if not preconditions:
        return
    for part, shown in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = preconditions.get(part)
        if wanted is not None and wanted != metadata.get(part, ""):
            why = (
                f"Precondition failed: {shown} in precondition: {wanted}, {shown} in object meta: {metadata.get(part)}"
            )
            raise errors.conflict(resource.group, resource.plural, metadata.get("name", ""), why)
