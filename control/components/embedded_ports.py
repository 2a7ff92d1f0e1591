"""Ports of the controllers and the scheduler in the API server's process: 127.0.0.1:10257 and :10259, as upstream's daemons.

They show the API server's certificate and review their clients as the component's own user. Where a port is taken the API
server runs without it, and retries.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from control.config import ControlConfig
from control.event_loop import imports
from kube import client_authorities, tls_settings
from kube.client import Client
from kube.clock import Clock
from kube.tls_files import TlsFiles

log = logging.getLogger(__name__)
RETRY_SECONDS = 30.0


async def serve(config: ControlConfig, clock: Clock, component: str, port: int, client: Client) -> None:
    """Serve a component's port until cancelled; `client` acts as the component and sends the reviews."""
    await imports.ensure("control.components.secure_port")
    from control.components.access import ComponentAccess
    from control.components.secure_port import MANAGER, PortSettings, serving

    file = config.controller_config_file if component == MANAGER else config.scheduler_config_file
    tls = TlsFiles(partial(_tls, config), [config.cert_file, config.key_file, config.client_ca_file])
    settings = PortSettings(
        component=component,
        port=port,
        access=ComponentAccess(client, client, clock),
        tls=tls.current,
        configuration=partial(document, file),
        gates=config.feature_gates,
    )
    while True:
        try:
            tls.current()
            async with serving(settings):
                await asyncio.Event().wait()
        except OSError as error:
            log.error("%s: health and metrics are not served on port %d: %s", component, port, error)
            await clock.sleep(RETRY_SECONDS)


def _tls(config: ControlConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_settings.apply(context, config.tls_cipher_suites, config.tls_min_version)
    context.load_cert_chain(config.cert_file, config.key_file)
    client_authorities.accept(context, config.client_ca_file)
    return context


def document(file: Path | None) -> Mapping[str, Any]:
    """Return a component's configuration file for /configz; nothing if all settings have their defaults."""
    found = yaml.safe_load(file.read_bytes()) if file is not None else None
    return found if isinstance(found, dict) else {}
