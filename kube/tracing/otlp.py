"""Records spans with the OpenTelemetry SDK, and sends them to a collector by OTLP over gRPC, without TLS as upstream.

The SDK's batch processor has a thread that sends, and a queue of 2048 spans: the event loop only appends to it. Spans that do
not fit, and batches that a collector does not accept within ten seconds, are dropped. The log has one line when that begins
and one when it ends. A stopping process waits `CLOSE_SECONDS` for the last batch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, NonRecordingSpan, Status, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.trace import Span as SdkSpan
from opentelemetry.trace import SpanContext as SdkContext
from opentelemetry.trace import SpanKind as SdkKind

from kube.build import GIT_VERSION
from kube.tracing.spans import LONGEST_ATTRIBUTE, Attribute, Attributes, Kind
from kube.tracing.traceparent import SpanContext

log = logging.getLogger(__name__)

CLOSE_SECONDS = 2.0
SEND_SECONDS = 10.0
"""Time that one batch may take, with its retries."""
MOST_LINKS = 8
_SDK_LOGGER, _QUEUE_LOGGER = "opentelemetry", "opentelemetry.sdk._shared_internal"
_KINDS = {Kind.INTERNAL: SdkKind.INTERNAL, Kind.SERVER: SdkKind.SERVER, Kind.CLIENT: SdkKind.CLIENT}


class _Ids(IdGenerator):
    """Gives the SDK the IDs that the tracer has chosen. Each thread sets its own right before it starts a span."""

    def __init__(self) -> None:
        self._chosen = threading.local()

    def choose(self, context: SpanContext) -> None:
        self._chosen.context = context

    def generate_span_id(self) -> int:
        found: int = self._chosen.context.span_id
        return found

    def generate_trace_id(self) -> int:
        found: int = self._chosen.context.trace_id
        return found


class _Messages(logging.Handler):
    """Keeps the SDK's last message instead of logging each: they repeat with every batch, and with every dropped span."""

    def __init__(self) -> None:
        super().__init__()
        self.overflowed = False
        self._last = threading.local()

    @property
    def last(self) -> str:
        """The last message of the running thread, which sends the spans of one exporter."""
        found: str = getattr(self._last, "text", "")
        return found

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != _QUEUE_LOGGER:
            with contextlib.suppress(Exception):
                self._last.text = " ".join(record.getMessage().split())[:500]
        elif record.levelno == logging.WARNING and not self.overflowed:
            self.overflowed = True
            log.warning(
                "spans are dropped, as the collector accepts fewer than are recorded: lower samplingRatePerMillion"
            )


messages = _Messages()


class _Exporter(SpanExporter):
    """Exporter that logs when its collector becomes unreachable, and when it is reachable again."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._inner = OTLPSpanExporter(
            endpoint=endpoint, insecure=True, timeout=SEND_SECONDS, meter_provider=NoOpMeterProvider()
        )
        logger = logging.getLogger(_SDK_LOGGER)
        logger.propagate = False
        logger.addHandler(messages)
        self._failing = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        why = ""
        try:
            failed = self._inner.export(spans) is not SpanExportResult.SUCCESS
        except Exception as error:  # of a library, in its thread: it must not end it
            failed, why = True, f"{type(error).__name__}: {error}"
        if failed and not self._failing:
            log.warning("spans are dropped, as %s does not accept them: %s", self._endpoint, why or messages.last)
        elif self._failing and not failed:
            log.info("%s accepts spans again", self._endpoint)
        self._failing = failed
        return SpanExportResult.FAILURE if failed else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._inner.shutdown()


class _Span:
    """A span of the SDK."""

    __slots__ = ("_span",)

    def __init__(self, span: SdkSpan) -> None:
        self._span = span

    def set_attribute(self, key: str, value: Attribute) -> None:
        self._span.set_attribute(key, value)

    def fail(self, reason: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR, reason))

    def link(self, context: SpanContext) -> None:
        self._span.add_link(_sdk(context))

    def end(self) -> None:
        self._span.end()


class OtlpRecorder:
    """A tracer's recorder (kube/tracing/tracer.py) that sends to `endpoint`; `resource` describes the service."""

    def __init__(self, endpoint: str, resource: Mapping[str, str]) -> None:
        self._exporter = _Exporter(endpoint)
        self._ids = _Ids()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # the tracer has decided
            resource=Resource.create(dict(resource)),
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=SpanLimits(max_span_attribute_length=LONGEST_ATTRIBUTE, max_links=MOST_LINKS),
            meter_provider=NoOpMeterProvider(),
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter, meter_provider=NoOpMeterProvider()))
        self._tracer = self._provider.get_tracer("wherry", GIT_VERSION)

    def start(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        attributes: Attributes | None,
        kind: Kind,
        links: Sequence[SpanContext],
        start: int,
    ) -> _Span:
        """Start a span with the IDs of `context`."""
        above = set_span_in_context(NonRecordingSpan(_sdk(parent))) if parent is not None else Context()
        self._ids.choose(context)
        return _Span(
            self._tracer.start_span(
                name,
                above,
                _KINDS[kind],
                dict(attributes) if attributes else None,
                [Link(_sdk(each)) for each in links],
                start,
                record_exception=False,
                set_status_on_exception=False,
            )
        )

    async def close(self) -> None:
        """Send the last spans; ends after `CLOSE_SECONDS` if the collector does not accept them."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

        # A daemon thread: the end of the process does not wait for it.
        threading.Thread(target=shut_down, name="last spans", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await done.wait()
        except TimeoutError:
            log.warning("the last spans are dropped: the collector did not accept them within %g s", CLOSE_SECONDS)
            self._exporter.shutdown()


def _sdk(context: SpanContext) -> SdkContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SdkContext(context.trace_id, context.span_id, is_remote=True, trace_flags=flags)
