"""Spans of requests and of pods' starts, sent to an OpenTelemetry collector if tracing is configured.

`configuration` reads upstream's TracingConfiguration. `spans` has the span of the running task, `traceparent` its header, and
`tracer` decides which traces are sampled. Only `otlp` imports the OpenTelemetry SDK, and only a role with a configuration
imports `otlp`: without one there is no tracer, no current span, and every call site ends at an `is None`.
"""
