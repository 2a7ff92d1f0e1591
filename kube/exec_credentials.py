"""Runs credential plugins of kubeconfigs (client.authentication.k8s.io): programs that print a token or a certificate.

A plugin gets the request in the variable KUBERNETES_EXEC_INFO and answers an ExecCredential on its standard output. Its
standard error is the user's. Source: kubernetes.io/docs/reference/access-authn-authz/authentication.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from kube.kubeconfig import KubeconfigError

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
LIMIT_SECONDS = 60.0
"""Limit of a plugin's run: it may have to wait for a person who logs in."""
END_SECONDS = 5.0
MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The cluster, as plugins with `provideClusterInfo` get it."""

    server: str
    server_name: str = ""
    insecure: bool = False
    ca: bytes | None = None

    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = {"server": self.server}
        if self.server_name:
            found["tls-server-name"] = self.server_name
        if self.insecure:
            found["insecure-skip-tls-verify"] = True
        if self.ca:
            found["certificate-authority-data"] = base64.b64encode(self.ca).decode()
        return found


@dataclass(frozen=True, slots=True)
class Plugin:
    """The `exec` part of a kubeconfig's user."""

    version: str
    command: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    interactive: str = "IfAvailable"
    cluster: ClusterInfo | None = None


class Credentials(msgspec.Struct, rename="camel", frozen=True):
    """Answer of a plugin: a token, or a certificate and its key as PEM text, or both."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: Credentials | None = None


def plugin_of(settings: dict[str, Any], base: Path, cluster: ClusterInfo) -> Plugin:
    """Return the plugin of a user's `exec` part; a relative path is one from `base`. Raises KubeconfigError."""
    version, command = settings.get("apiVersion") or "", settings.get("command") or ""
    if version not in VERSIONS:
        raise KubeconfigError(
            f"the credential plugin {command!r} has apiVersion {version!r}: use {' or '.join(VERSIONS)}"
        )
    if not command:
        raise KubeconfigError("the credential plugin of the kubeconfig has no command")
    if "/" in command and not command.startswith("/"):
        command = str(base / command)
    return Plugin(
        version,
        command,
        tuple(map(str, settings.get("args") or ())),
        {each["name"]: each["value"] for each in settings.get("env") or ()},
        " ".join((settings.get("installHint") or "").split()),
        settings.get("interactiveMode") or "IfAvailable",
        cluster if settings.get("provideClusterInfo") else None,
    )


async def credentials(plugin: Plugin, limit: float = LIMIT_SECONDS) -> Credentials:
    """Run a plugin and return its credentials. Raises KubeconfigError."""
    interactive = plugin.interactive != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not interactive:
        raise KubeconfigError(f"the credential plugin {plugin.command} asks questions: run this command in a terminal")
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster.data()
    info = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
    try:
        process = await asyncio.create_subprocess_exec(
            *(plugin.command, *plugin.arguments),
            env={**os.environ, **plugin.variables, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdin=None if interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        hint = f": {plugin.hint}" if plugin.hint else ""
        why = getattr(error, "strerror", None) or error
        raise KubeconfigError(f"the credential plugin {plugin.command} cannot be run: {why}{hint}") from error
    return _decoded(plugin, await _output(plugin, process, limit))


async def _output(plugin: Plugin, process: asyncio.subprocess.Process, limit: float) -> bytes:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(limit):
            output = bytearray()
            while chunk := await process.stdout.read(1 << 16):
                output += chunk
                if len(output) > MOST_BYTES:
                    raise KubeconfigError(
                        f"the credential plugin {plugin.command} printed more than {MOST_BYTES >> 20} MiB"
                    )
            status = await process.wait()
    except TimeoutError:
        raise KubeconfigError(f"the credential plugin {plugin.command} has not ended after {limit:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        process._transport.close()  # type: ignore[attr-defined]  # a child of the plugin may keep its output open
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_SECONDS)
        await asyncio.sleep(0)  # the pipe closes in the next iteration of the event loop
    if status:
        raise KubeconfigError(f"the credential plugin {plugin.command} failed with exit code {status}")
    return bytes(output)


def _decoded(plugin: Plugin, output: bytes) -> Credentials:
    wrong = f"the credential plugin {plugin.command} printed "
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except msgspec.DecodeError:  # without the text, which may be a token
        raise KubeconfigError(f"{wrong}no ExecCredential") from None
    if answer.kind != "ExecCredential" or answer.api_version != plugin.version:
        raise KubeconfigError(f"{wrong}a {answer.kind} of {answer.api_version}, and {plugin.version} is asked for")
    found = answer.status or Credentials()
    if bool(found.client_certificate_data) != bool(found.client_key_data):
        raise KubeconfigError(f"{wrong}a certificate without its key, or a key without its certificate")
    if not (found.token or found.client_certificate_data):
        raise KubeconfigError(f"{wrong}neither a token nor a certificate")
    return found
