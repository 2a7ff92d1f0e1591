"""Subresources that show the object itself and allow changes of some of its fields.

The strategy selects the fields (`prepare_subresource`): ephemeral containers or resources of a pod, the finalizers of a
namespace, the approval of a certificate request.
"""

from __future__ import annotations

from control.http.exchange import Answer, Request
from control.server.verbs import Verbs
from kube.resources import Resource


async def get(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Show the whole object."""
    return await server.get(request, resource)


async def update(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Replace the part that the subresource stands for."""
    return await server.update(request, resource, request.info.subresource)


async def patch(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Patch the part that the subresource stands for."""
    return await server.patch(request, resource, request.info.subresource)
