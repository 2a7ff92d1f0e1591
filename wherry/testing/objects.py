"""The objects of a cluster that runs in a thread."""

from __future__ import annotations

import abc
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from kube.json_object import Object
from wherry.testing.async_cluster import AsyncCluster
from wherry.testing.manifests import Source

T = TypeVar("T")


class Objects(abc.ABC):
    """Methods of a cluster that runs."""

    running: AsyncCluster

    @abc.abstractmethod
    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's event loop and return its result."""

    def apply(self, source: Source, *, namespace: str = "default") -> list[Object]:
        """Apply objects (a path, YAML text, dicts) by server-side apply; return them as the server has them."""
        return self.run(self.running.apply(source, namespace=namespace))

    def create(self, obj: Mapping[str, Any], *, namespace: str = "default") -> Object:
        """Create an object, also of a kind that cannot be applied (SubjectAccessReview); return the answer."""
        return self.run(self.running.create(obj, namespace=namespace))

    def get(self, reference: str, *, namespace: str = "default") -> Object:
        """Return an object by its reference (`deployment/web`)."""
        return self.run(self.running.get(reference, namespace=namespace))

    def list(self, resource: str, *, namespace: str = "default", selector: str = "") -> list[Object]:
        """Return the objects of a resource in a namespace ("" is all of them)."""
        return self.run(self.running.list(resource, namespace=namespace, selector=selector))

    def patch(self, reference: str, patch: Object, *, namespace: str = "default", subresource: str = "") -> Object:
        """Change an object by a merge patch; return it."""
        return self.run(self.running.patch(reference, patch, namespace=namespace, subresource=subresource))

    def delete(self, reference: str, *, namespace: str = "default") -> None:
        """Delete an object, as kubectl does (in the background)."""
        self.run(self.running.delete(reference, namespace=namespace))
