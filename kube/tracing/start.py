"""Creates the tracer of a role, if tracing is configured."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kube.tracing.configuration import TracingConfiguration, TracingError
from kube.tracing.tracer import Recorder, Tracer


async def start(configuration: TracingConfiguration | None, resource: Mapping[str, str]) -> Tracer | None:
    """Return a tracer, None without a configuration; raises TracingError if the SDK is not installed.

    The SDK is imported in a thread: that takes some tenths of a second.
    """
    if configuration is None:
        return None
    return Tracer(await asyncio.to_thread(_recorder, configuration.target, resource), configuration.rate)


def _recorder(endpoint: str, resource: Mapping[str, str]) -> Recorder:
    try:
        from kube.tracing.otlp import OtlpRecorder
    except ImportError as error:
        raise TracingError(
            f"tracing is configured, and its packages are not installed ({error}): install wherry[tracing], "
            "or remove the configuration"
        ) from error
    return OtlpRecorder(endpoint, resource)
