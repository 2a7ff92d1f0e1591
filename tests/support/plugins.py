"""A plugin's registration socket, served for real, as the registrar of a CSI driver, device plugin or DRA driver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from agent.plugins.messages import InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse


class RegistrationSocket:
    """Serves the registration interface while the context is open; `told` holds what the agent said, "" for success."""

    def __init__(self, socket: Path, kind: str, name: str, endpoint: str = "", versions: Sequence[str] = ("1.0.0",)):
        self.socket = socket
        self.info = PluginInfo(type=kind, name=name, endpoint=endpoint, supported_versions=list(versions))
        self.registration_errors: asyncio.Queue[str] = asyncio.Queue()
        self._server: grpc.aio.Server | None = None

    async def _info(self, request: Any, context: Any) -> PluginInfo:
        return self.info

    async def _notify(self, request: Any, context: Any) -> RegistrationStatusResponse:
        self.registration_errors.put_nowait("" if request.plugin_registered else request.error)
        return RegistrationStatusResponse()

    async def __aenter__(self) -> RegistrationSocket:
        def unary(function: Any, request: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(
                function, request_deserializer=request.FromString, response_serializer=lambda m: m.SerializeToString()
            )

        handlers = {
            "GetInfo": unary(self._info, InfoRequest),
            "NotifyRegistrationStatus": unary(self._notify, RegistrationStatus),
        }
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("pluginregistration.Registration", handlers),)
        )
        self._server.add_insecure_port(f"unix://{self.socket}")
        await self._server.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        await self._server.stop(None)
        self.socket.unlink(missing_ok=True)
