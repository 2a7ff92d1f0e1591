"""A transport with a few objects in memory: enough of an API server for the client's own logic."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kube.client import Response
from kube.errors import StatusError, already_exists, conflict, expired, not_found


class FakeAPI:
    """Keeps objects by path; every write gets a revision and goes to all watchers."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.revision = 0
        self.watchers: list[asyncio.Queue[bytes | None]] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.away = False
        self.too_old = self.always_too_old = False
        self.refused = ""
        """Message with which the server refuses every request; empty where it does not."""

    def put(self, path: str, obj: dict[str, Any], type: str = "") -> dict[str, Any]:
        self.revision += 1
        obj = json.loads(json.dumps(obj))
        obj.setdefault("metadata", {})["resourceVersion"] = str(self.revision)
        before = self.objects.get(path)
        obj["metadata"].setdefault("uid", before["metadata"]["uid"] if before else f"uid-{self.revision}")
        type = type or ("MODIFIED" if path in self.objects else "ADDED")
        if type == "DELETED":
            self.objects.pop(path, None)
        else:
            self.objects[path] = obj
        for queue in self.watchers:
            queue.put_nowait(json.dumps({"type": type, "object": obj}).encode() + b"\n")
        return obj

    def remove(self, path: str) -> None:
        self.put(path, self.objects[path], "DELETED")

    def drop_watches(self) -> None:
        for queue in self.watchers:
            queue.put_nowait(None)
        self.watchers.clear()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        most_bytes: int | None = None,
    ) -> Response:
        sent = json.loads(body) if body else None
        self.requests.append((method, path, dict(query or {}), sent))
        try:
            return Response(200, {}, json.dumps(self._handle(method, path, sent)).encode())
        except StatusError as error:
            return Response(error.code, {}, json.dumps(error.to_status()).encode())

    def _handle(self, method: str, path: str, sent: Any) -> Any:
        if self.away:
            raise StatusError(503, "ServiceUnavailable", "away")
        if self.refused:
            raise StatusError(403, "Forbidden", self.refused)
        if method == "POST":
            path = f"{path}/{sent['metadata']['name']}"
            if path in self.objects:
                raise already_exists("", "things", sent["metadata"]["name"])
            return self.put(path, sent)
        if path in self.objects:
            if method == "PUT":
                wanted = sent["metadata"].get("resourceVersion")
                if wanted and wanted != self.objects[path]["metadata"]["resourceVersion"]:
                    raise conflict("", "things", path, "modified")
                return self.put(path, sent)
            if method == "PATCH":
                return self.put(path, {**self.objects[path], **sent})
            if method == "DELETE":
                self.remove(path)
            return self.objects.get(path, {"kind": "Status", "status": "Success"})
        if method != "GET" or path.rpartition("/")[0].endswith("leases"):
            raise not_found("", "things", path)
        inside = [o for p, o in sorted(self.objects.items()) if p.startswith(path + "/")]
        return {"kind": "List", "metadata": {"resourceVersion": str(self.revision)}, "items": inside}

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        self.requests.append(("WATCH", path, dict(query or {}), None))
        if self.away:
            raise StatusError(503, "ServiceUnavailable", "away")
        if self.too_old or self.always_too_old:
            self.too_old = False
            raise expired()
        if int((query or {}).get("resourceVersion") or 0) > self.revision:
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            raise StatusError(504, "Timeout", "Timeout: Too large resource version", {"causes": causes})
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.watchers.append(queue)

        async def chunks() -> AsyncIterator[bytes]:
            while (line := await queue.get()) is not None:
                # In two pieces, as a network may cut them.
                yield line[:7]
                yield line[7:]

        yield chunks()

    async def close(self) -> None:
        self.drop_watches()
