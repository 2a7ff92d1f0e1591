"""AlwaysPullImages (off by default): only pods that may pull an image can use one that is on the node.

Every container, and every image volume, gets the pull policy Always. An update that brings no new image is left alone, so that
pods from before the plugin was switched on can still be labelled.
"""

from __future__ import annotations

from collections.abc import Iterator

from control.interfaces.admission import Attributes, Plugin
from kube.errors import FieldError, invalid, not_supported
from kube.json_object import Object

LISTS = ("initContainers", "containers", "ephemeralContainers")
ALWAYS = "Always"


class AlwaysPullImages(Plugin):
    name = "AlwaysPullImages"
    targets = ("pods",)

    def handles(self, attributes: Attributes) -> bool:
        if attributes.resource.target != "pods" or attributes.subresource not in ("", "ephemeralcontainers"):
            return False
        if attributes.operation == "UPDATE":
            return bool(images(attributes.obj) - images(attributes.old))
        return attributes.operation == "CREATE"

    async def admit(self, attributes: Attributes) -> None:
        for path, holder, policy in _policies(attributes.obj):
            if holder.get(policy) != ALWAYS:
                attributes.changed(self.name, f"{path}.{policy}")
            holder[policy] = ALWAYS

    async def validate(self, attributes: Attributes) -> None:
        problems: list[FieldError] = [
            not_supported(f"{path}.{policy}", holder.get(policy, ""), (ALWAYS,))
            for path, holder, policy in _policies(attributes.obj)
            if holder.get(policy) != ALWAYS
        ]
        if problems:
            name = (attributes.obj or {}).get("metadata", {}).get("name", "")
            raise invalid("", "Pod", name, problems)


def images(pod: Object | None) -> set[str]:
    """Return the images that a pod names."""
    spec = (pod or {}).get("spec") or {}
    found = {each.get("image", "") for name in LISTS for each in spec.get(name) or ()}
    return found | {volume["image"].get("reference", "") for volume in spec.get("volumes") or () if volume.get("image")}


def _policies(pod: Object | None) -> Iterator[tuple[str, Object, str]]:
    """Yield the path, the holder and the field's name of each pull policy."""
    spec = (pod or {}).get("spec") or {}
    for name in LISTS:
        for index, container in enumerate(spec.get(name) or ()):
            yield f"spec.{name}[{index}]", container, "imagePullPolicy"
    for index, volume in enumerate(spec.get("volumes") or ()):
        if volume.get("image"):
            yield f"spec.volumes[{index}].image", volume["image"], "pullPolicy"
