"""A transport to a server that cannot list some resources, as where a conversion webhook is dead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube.client import Response, Transport
from kube.errors import StatusError


class Unlistable:
    """Requests for the collections of the resources in `broken` fail with 500."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.broken: set[str] = set()

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if method == "GET" and path.split("/")[-1] in self.broken:
            raise StatusError(500, "InternalError", "Internal error occurred: conversion webhook failed")
        return await self._inner.request(method, path, **options)

    def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        return self._inner.stream(path, query=query)

    async def close(self) -> None:
        await self._inner.close()
