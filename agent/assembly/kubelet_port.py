"""Serves the kubelet port: joins the server with its dependencies, and finds its serving certificate."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agent.assembly.agent import Agent
from agent.config import AgentConfig
from agent.kubelet_configuration import shown
from agent.node.registration import NodeRegistration
from agent.server.app import ServerDependencies, build
from agent.server.authorization import Authorizer
from agent.server.listeners import Listener, serve_health
from agent.server.listeners import serve as serve_tls
from agent.shutdown.state import load as last_shutdown
from agent.usage.endpoints import UsageEndpoints
from agent.volumes.local_path import LocalPathVolumes
from kube import certificates, pki
from kube.client import Client
from kube.clock import Clock
from kube.delegated_authentication import Authenticator
from kube.delegated_reviews import client_for_reviews, places
from kube.loops import Loops

log = logging.getLogger(__name__)


async def serve(agent: Agent) -> None:
    """Serve the kubelet's API and the health port until cancelled."""
    base, node = agent.base, agent.node
    config, client, clock = base.config, base.client, base.clock
    app = _app(agent)
    async with asyncio.TaskGroup() as group:
        if config.server_tls_bootstrap and config.tls_cert_file is None:
            group.create_task(_serve_signed(app, config, client, node, clock), name="kubelet API")
        else:
            cert, key = await asyncio.to_thread(_certificate, config, node, clock)
            group.create_task(serve_tls(app, _listener(config, cert, key)), name="kubelet API")
        if config.healthz_port:
            group.create_task(
                serve_health(_health, config.healthz_address, config.healthz_port), name="kubelet healthz"
            )


def _app(agent: Agent) -> Any:
    base, pods = agent.base, agent.pods.manager
    config, client, clock, metrics = base.config, base.client, base.clock, base.metrics
    endpoints = UsageEndpoints(
        agent.reclaim.collector,
        pods,
        config.node_name,
        agent.pods.prober.metrics,
        base.operations,
        metrics,
        base.machine,
        base.pod_cgroups,
        config.root_dir,
        partial(last_shutdown, config.root_dir),
    )
    parts = ServerDependencies(
        pods=pods,
        runtime=base.runtime.client.runtime,
        attached=base.runtime.attached,
        clock=clock,
        pod_logs_dir=config.pod_logs_dir,
        health=_health,
        configuration=lambda: configuration(config),
        summary=endpoints.summary,
        checkpoints_dir=config.root_dir / "checkpoints",
        streaming_idle=config.streaming_idle_timeout,
        remove_volume=LocalPathVolumes(config.local_path_dir).remove,
        metrics_texts=endpoints.texts(),
        system_logs_dir=config.system_logs_dir,
        metrics=metrics,
        flags=config.flags,
        journal=base.journal,
    )
    reviewing, line = client_for_reviews(client), places()
    access = config.access
    return build(
        parts,
        Authenticator(
            reviewing if access.webhook else None,
            clock,
            cache_seconds=access.authentication_cache,
            anonymous=access.anonymous,
            line=line,
        ),
        Authorizer(
            reviewing if access.authorization_mode == "Webhook" else None,
            config.node_name,
            clock,
            allowed_seconds=access.authorized_cache,
            denied_seconds=access.unauthorized_cache,
            line=line,
        ),
        config.handlers,
        base.tracer,
    )


def _health() -> str:
    """Return the complaint of /healthz: none, because it is the process that answers."""
    return ""


def _listener(config: AgentConfig, cert: Path, key: Path) -> Listener:
    return Listener(
        address=config.address,
        port=config.port,
        cert_file=cert,
        key_file=key,
        cipher_suites=config.tls_cipher_suites,
        min_version=config.tls_min_version,
        client_ca_file=config.client_ca_file,
    )


async def _serve_signed(app: Any, config: AgentConfig, client: Client, node: NodeRegistration, clock: Clock) -> None:
    """Serve with a certificate that the cluster signs, from the moment it is there."""
    renewed = asyncio.Event()

    async def set_renewed() -> None:
        renewed.set()

    names = (config.node_name, *node.addresses)
    rotation = certificates.Rotation(
        certificates.SERVING,
        config.cert_dir,
        client,
        lambda key: pki.kubelet_serving_request(key, config.node_name, names),
        set_renewed,
        names=names,
        clock=clock,
    )
    await node.registered.wait()
    async with asyncio.TaskGroup() as group:
        group.create_task(Loops(clock).run("serving certificate", rotation.run), name="serving certificate")
        if not await asyncio.to_thread(rotation.file.exists):
            await renewed.wait()
        await serve_tls(app, _listener(config, rotation.file, rotation.file))


def _certificate(config: AgentConfig, node: NodeRegistration, clock: Clock) -> tuple[Path, Path]:
    """Return the serving certificate's files: those of the configuration, or a self-signed pair made here."""
    if config.tls_cert_file is not None and config.tls_private_key_file is not None:
        return config.tls_cert_file, config.tls_private_key_file
    cert, key = config.cert_dir / "kubelet.crt", config.cert_dir / "kubelet.key"
    if not (cert.exists() and key.exists()):
        log.info("creating a self-signed serving certificate in %s", config.cert_dir)
        now = clock.now()
        authority = pki.new_ca(f"{config.node_name}-ca@{int(now.timestamp())}", now)
        pair = pki.issue(
            authority,
            config.node_name,
            usages=(pki.SERVER,),
            sans=[config.node_name, *node.addresses, "127.0.0.1"],
            now=now,
        )
        config.cert_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        pair.save(config.cert_dir, "kubelet")
    return cert, key


def configuration(config: AgentConfig) -> Mapping[str, Any]:
    """Return the settings in force for /configz: upstream's file, with what it left out filled in."""
    file = config.file
    found: dict[str, Any] = shown(msgspec.structs.replace(file, eviction_hard=dict(config.eviction.hard)))
    return {**found, "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
