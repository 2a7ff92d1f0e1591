"""POST /checkpoint/{namespace}/{pod}/{container}: the runtime writes a running container's state to an archive (KEP-2008)."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from agent.interfaces import Pods
from cri.errors import CRIError
from cri.runtime_service import RuntimeService
from kube.clock import Clock, format_time


class Checkpoints:
    """Answers requests; archives are written below `folder`, which only root may read: they hold the processes' memory."""

    def __init__(self, pods: Pods, runtime: RuntimeService, folder: Path, clock: Clock) -> None:
        self._pods, self._runtime, self._folder, self._clock = pods, runtime, folder, clock

    async def write(self, request: Request) -> Response:
        """Write one, and answer where it is."""
        namespace, name, container = (request.path_params[part] for part in ("namespace", "pod", "container"))
        view = self._pods.view(namespace, name)
        if view is None:
            return PlainTextResponse("pod does not exist", 404)
        spec = view.pod.spec
        named = {c.name for c in (*spec.containers, *spec.init_containers)} | {
            c.name for c in spec.ephemeral_containers
        }
        if container not in named:
            return PlainTextResponse(f"container {container} does not exist", 404)
        text = request.query_params.get("timeout", "0")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            return PlainTextResponse("cannot parse value of timeout parameter", 500)
        failed = f"checkpointing of {namespace}/{name}/{container} failed"
        found = view.running(container)
        if found is None:
            return PlainTextResponse(f"{failed} (container {container} not found)", 500)
        stamp = format_time(self._clock.now())
        location = self._folder / f"checkpoint-{name}_{namespace}-{container}-{stamp}.tar"
        try:
            await asyncio.to_thread(self._folder.mkdir, parents=True, exist_ok=True, mode=0o700)
            await self._runtime.checkpoint_container(found.id, str(location), int(text))
        except CRIError as error:
            return PlainTextResponse(f"{failed} ({error.grpc_text()})", 500)
        except OSError as error:
            return PlainTextResponse(f"{failed} ({error})", 500)
        return JSONResponse({"items": [str(location)]})
