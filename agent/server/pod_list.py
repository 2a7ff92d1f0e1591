"""/pods: a list of pods as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.responses import Response

from kube import serialize
from kube.api import core_v1


async def pod_list(pods: Iterable[core_v1.Pod]) -> Response:
    """Return a PodList."""
    items: list[bytes] = []
    for pod in pods:
        items.append(serialize.encode_readable(pod))
        await asyncio.sleep(0)  # large pods of all namespaces would be one long step, of whoever requests the list
    body = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[' + b",".join(items) + b"]}"
    return Response(body, media_type="application/json")
