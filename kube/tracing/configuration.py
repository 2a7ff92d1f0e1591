"""Upstream's TracingConfiguration: the collector's address and the number of traces out of a million that are recorded.

The kubelet's configuration has it as `tracing`; the API server reads a file of the group apiserver.config.k8s.io
(--tracing-config-file). Messages are upstream's (component-base/tracing/api/v1, apiserver/pkg/server/options/tracing.go).
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import yaml

from kube import decode_errors, yaml_errors

GROUP, KIND = "apiserver.config.k8s.io", "TracingConfiguration"
VERSIONS = ("v1", "v1beta1", "v1alpha1")
DEFAULT_ENDPOINT = "localhost:4317"
MILLION = 1_000_000
_SCHEMES = ("dns", "unix", "unix-abstract")
_NAMING = "https://github.com/grpc/grpc/blob/master/doc/naming.md"
_CONTROL = re.compile(r"[\x00-\x20\x7f]")


class TracingError(ValueError):
    """Tracing cannot be set up; the message is one sentence."""


class TracingConfiguration(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """The fields that the kubelet's and the API server's configurations share."""

    endpoint: str | None = None
    """Address of an OTLP collector that speaks gRPC without TLS; None: DEFAULT_ENDPOINT."""
    sampling_rate_per_million: int | None = None
    """Traces out of a million that begin here and are recorded; None and 0: only those that a trusted client samples."""

    @property
    def target(self) -> str:
        """The endpoint as gRPC reads it."""
        scheme, found, rest = (self.endpoint or DEFAULT_ENDPOINT).partition("://")
        if not found:
            return scheme
        if scheme == "dns":  # the resolver's own address, which may precede the name, is not supported by this client
            return rest.rpartition("/")[2]
        return f"{scheme}:{rest}"

    @property
    def rate(self) -> int:
        return self.sampling_rate_per_million or 0


def problems(configuration: TracingConfiguration, path: str = "") -> list[str]:
    """Return what is invalid; `path` is the field that has the configuration."""
    prefix = f"{path}." if path else ""
    found = []
    rate = configuration.sampling_rate_per_million
    if rate is not None and rate < 0:
        found.append(f"{prefix}samplingRatePerMillion: Invalid value: {rate}: sampling rate must be positive")
    if rate is not None and rate > MILLION:
        why = "sampling rate per million must be less than or equal to one million"
        found.append(f"{prefix}samplingRatePerMillion: Invalid value: {rate}: {why}")
    if configuration.endpoint is not None and (why := _endpoint_problem(configuration.endpoint)):
        found.append(f'{prefix}endpoint: Invalid value: "{configuration.endpoint}": {why}')
    return found


def _endpoint_problem(endpoint: str) -> str:
    if _CONTROL.search(endpoint):
        return "an address has no blanks and no control characters"
    if "//" not in endpoint:
        return ""
    scheme = endpoint.partition(":")[0] if "://" in endpoint else ""
    if scheme in _SCHEMES:
        return ""
    return f"unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See {_NAMING}"


def checked(configuration: TracingConfiguration, path: str = "") -> TracingConfiguration:
    """Return a valid configuration; raises TracingError."""
    if found := problems(configuration, path):
        text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
        raise TracingError(f"failed to validate tracing configuration: {text}")
    return configuration


class _File(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    api_version: str
    kind: str
    endpoint: str | None = None
    sampling_rate_per_million: int | None = None


def load(path: Path) -> TracingConfiguration:
    """Read the API server's file; raises TracingError with one sentence."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not UTF-8"
        raise TracingError(f'failed to read tracing config: unable to read "{path}": {why}') from error
    undecodable = f"failed to read tracing config: unable to decode tracing configuration data: {path}: "
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise TracingError(undecodable + yaml_errors.with_line(error, text)) from error
    try:
        file = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        raise TracingError(f"{undecodable}{decode_errors.sentence(error)}") from error
    group, _, version = file.api_version.partition("/")
    if group != GROUP or version not in VERSIONS or file.kind != KIND:
        accepted = ", ".join(VERSIONS)
        raise TracingError(
            f"{undecodable}expected {KIND} of {GROUP} ({accepted}), found {file.kind} of {file.api_version}"
        )
    return checked(TracingConfiguration(file.endpoint, file.sampling_rate_per_million))
