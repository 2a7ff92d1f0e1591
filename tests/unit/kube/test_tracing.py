"""Configuration of tracing, traceparent headers, sampling, and the spans of tasks, without the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from kube.errors import conflict
from kube.tracing import spans, traceparent
from kube.tracing.configuration import MILLION, TracingConfiguration, TracingError, load, problems
from kube.tracing.traceparent import SpanContext
from tests.support.spans import tracer

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
REMOTE = SpanContext(TRACE, SPAN, True)


# -- configuration ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("endpoint", "rate", "expected"),
    [
        (None, None, []),
        ("localhost:4317", 0, []),
        ("dns:///collector:4317", MILLION, []),
        ("unix:///run/collector.sock", 1, []),
        (None, -1, ["tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive"]),
        (
            None,
            MILLION + 1,
            [
                "tracing.samplingRatePerMillion: Invalid value: 1000001: "
                "sampling rate per million must be less than or equal to one million"
            ],
        ),
        (
            "https://collector:4317",
            None,
            [
                'tracing.endpoint: Invalid value: "https://collector:4317": unsupported scheme: https.  '
                "Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"
            ],
        ),
        ("a b", None, ['tracing.endpoint: Invalid value: "a b": an address has no blanks and no control characters']),
    ],
)
def test_messages_are_upstreams(endpoint: str | None, rate: int | None, expected: list[str]) -> None:
    assert problems(TracingConfiguration(endpoint, rate), "tracing") == expected


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        (None, "localhost:4317"),
        ("10.0.0.1:4317", "10.0.0.1:4317"),
        ("dns:///collector:4317", "collector:4317"),
        ("dns://10.96.0.10/collector:4317", "collector:4317"),
        ("unix:///run/collector.sock", "unix:/run/collector.sock"),
        ("unix-abstract://collector", "unix-abstract:collector"),
    ],
)
def test_the_endpoint_as_grpc_reads_it(endpoint: str | None, target: str) -> None:
    assert TracingConfiguration(endpoint).target == target


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_a_file_of_each_version(tmp_path: Path, version: str) -> None:
    file = tmp_path / "tracing.yaml"
    file.write_text(
        f"apiVersion: apiserver.config.k8s.io/{version}\nkind: TracingConfiguration\nendpoint: c:1\nsamplingRatePerMillion: 5\n"
    )
    assert load(file) == TracingConfiguration("c:1", 5)


HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, 'unable to read "{}": No such file or directory'),
        ("{", "unable to decode tracing configuration data: {}: line 1: a value or a closing bracket is missing"),
        ("[]", "unable to decode tracing configuration data: {}: write a mapping, not a list"),
        (HEAD + "endpoints: a", "there is no field endpoints"),
        (HEAD + "samplingRatePerMillion: many", "samplingRatePerMillion: write a whole number, not a text"),
        (HEAD.replace("v1", "v2"), "found TracingConfiguration of apiserver.config.k8s.io/v2"),
        (HEAD.replace("Tracing", "Audit"), "found AuditConfiguration of apiserver.config.k8s.io/v1"),
        (
            HEAD + "samplingRatePerMillion: -1",
            "failed to validate tracing configuration: samplingRatePerMillion: Invalid",
        ),
    ],
)
def test_an_invalid_file_is_one_sentence(tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "tracing.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(TracingError) as raised:
        load(file)
    assert problem.format(file) in str(raised.value) and "\n" not in str(raised.value)


# -- the header -------------------------------------------------------------------------------------------------------
def test_a_header_names_trace_span_and_decision() -> None:
    assert REMOTE.traceparent == "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert traceparent.parse(REMOTE.traceparent) == REMOTE
    assert traceparent.parse(REMOTE.traceparent[:-2] + "00") == SpanContext(TRACE, SPAN, False)
    assert traceparent.parse(REMOTE.traceparent[:-2] + "03") == REMOTE, "another flag"
    assert traceparent.parse("01" + REMOTE.traceparent[2:] + "-more") == REMOTE, "a later version"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-" + "x" * 600,
    ],
)
def test_an_invalid_header_is_none(text: str) -> None:
    assert traceparent.parse(text) is None


# -- sampling ---------------------------------------------------------------------------------------------------------
def test_the_rate_holds_for_uids_of_pods() -> None:
    """A UUID's variant is in the 64 bits that OpenTelemetry's own sampler compares, which would select none at 1 %."""
    uids = [
        str(uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128), version=4))
        for number in range(1, 20001)
    ]
    for rate in (10_000, 500_000, 900_000):
        chosen = tracer(rate)[0]
        share = sum(root.sampled for uid in uids if (root := chosen.pod_root(uid)) is not None) / len(uids)
        assert share == pytest.approx(rate / MILLION, rel=0.2)


def test_processes_with_one_rate_decide_the_same_and_lower_rates_decide_for_a_part() -> None:
    uids = [str(uuid.uuid4()) for _ in range(500)]
    one, other, more = (
        {uid for uid in uids if (root := tracer(rate)[0].pod_root(uid)) is not None and root.sampled}
        for rate in (100_000, 100_000, 400_000)
    )
    assert one == other and one <= more


def test_none_and_all() -> None:
    for trace_id in (1, (1 << 56) - 1, (1 << 128) - 1):
        assert not tracer(0)[0].samples(trace_id)
        assert tracer(MILLION)[0].samples(trace_id)


def test_a_pods_trace_has_the_pods_uid() -> None:
    root = tracer()[0].pod_root("8a3c2c0e-94a5-4a7a-9f0e-0d6a2f6c1b2d")
    assert root == SpanContext(0x8A3C2C0E94A54A7A9F0E0D6A2F6C1B2D, 0x8A3C2C0E94A54A7A, True)
    for other in ("", "uid", "8a3c2c0e-94a5-4a7a", "g" * 32, "0" * 32, "8" * 33):
        assert tracer()[0].pod_root(other) is None


def test_a_request_continues_only_a_trusted_clients_trace() -> None:
    chosen, kept = tracer()
    span = chosen.accept("GET", REMOTE.traceparent, {}, 1, trusted=True)
    assert span.context.trace_id == TRACE and kept[0].parent == REMOTE and not kept[0].links
    span = chosen.accept("GET", REMOTE.traceparent, {}, 1, trusted=False)
    assert span.context.trace_id != TRACE and kept[1].parent is None and kept[1].links == [REMOTE]
    never, none = tracer(0)
    assert not never.accept("GET", REMOTE.traceparent, {}, 1, trusted=False).recording and not none
    assert never.accept("GET", REMOTE.traceparent, {}, 1, trusted=True).recording


def test_work_on_a_pod_is_in_its_trace_only_while_the_pod_starts() -> None:
    chosen, kept = tracer()
    uid = str(uuid.uuid4())
    root = chosen.pod_root(uid)
    assert root is not None
    assert chosen.pod_step("syncPod", uid, {}, starting=True).context.trace_id == root.trace_id
    assert chosen.pod_step("syncPod", uid, {}, starting=False).context.trace_id != root.trace_id
    assert [(each.parent, each.links) for each in kept] == [(root, []), (None, [root])]
    assert chosen.pod_step("syncPod", "no uuid", {}, starting=True).recording


# -- spans of tasks ---------------------------------------------------------------------------------------------------
def test_without_a_current_span_nothing_is_recorded() -> None:
    with spans.child("step") as span:
        assert span is None and spans.current() is None


def test_steps_are_children_and_the_span_before_is_restored() -> None:
    chosen, kept = tracer()
    with spans.active(chosen.begin("request")) as request:
        with spans.child("step", {"key": "value"}) as step:
            assert step is not None and spans.current() is step and step.entry is request
            with spans.child("inner") as inner:
                assert inner is not None and inner.entry is request
        assert spans.current() is request
    assert spans.current() is None
    assert [(each.name, each.parent) for each in kept] == [
        ("request", None),
        ("step", kept[0].context),
        ("inner", kept[1].context),
    ]
    assert all(each.ended for each in kept) and kept[1].attributes == {"key": "value"}


def test_an_error_is_recorded_by_its_code_not_by_its_text() -> None:
    chosen, kept = tracer()
    for error in (conflict("", "pods", "a", "a secret"), ValueError("a secret"), asyncio.CancelledError()):
        with pytest.raises(type(error)), spans.active(chosen.begin("request")):
            raise error
    assert [each.failure for each in kept] == ["Conflict", "ValueError", "CancelledError"]
    assert spans.current() is None


def test_what_is_not_sampled_only_passes_the_trace_on() -> None:
    chosen, kept = tracer(0)
    with spans.active(chosen.begin("request")) as request:
        with spans.child("step") as step:
            assert step is None
            assert spans.current() is request and request.traceparent.endswith("-00")
    assert not kept


async def test_a_task_that_outlives_its_request_records_nothing() -> None:
    chosen, kept = tracer()
    ended = asyncio.Event()

    async def work() -> None:
        await ended.wait()
        assert spans.current() is None
        with spans.child("step") as step:
            assert step is None

    with spans.active(chosen.begin("request")):
        task = asyncio.create_task(work())
    ended.set()
    await task
    assert [each.name for each in kept] == ["request"]
