"""The text format of metrics: numbers as Go writes them, no series that upstream has not."""

from __future__ import annotations

import os

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kube.exposition import label_text, number, text_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (0.005, "0.005"),
        (0.0001, "0.0001"),
        (0.00015, "0.00015"),
        (1e-5, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (999999, "999999"),
        (1e6, "1e+06"),
        (2592000, "2.592e+06"),
        (-1234567.5, "-1.2345675e+06"),
        (5242.88, "5242.88"),
        (1e21, "1e+21"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_a_number_is_written_as_go_writes_it(value: float, text: str) -> None:
    assert number(value) == text


def test_the_value_of_a_label_may_be_a_name_that_is_no_utf8() -> None:
    assert label_text({"device": os.fsdecode(b"/dev/\xff")}).encode() == '{device="/dev/\ufffd"}'.encode()


def test_families_are_written_without_times_of_creation() -> None:
    registry = CollectorRegistry()
    Counter("requests", "Requests \\ of\nall", ["code"], registry=registry).labels('a"\n\\b').inc()
    Gauge("size", "Size", registry=registry).set(1.5)
    histogram = Histogram("seconds", "Time", ["name"], buckets=(0.001, 1, 1000000), registry=registry)
    histogram.labels("x").observe(0.5)
    assert text_of(registry.collect()).decode().splitlines() == [
        "# HELP requests_total Requests \\\\ of\\nall",
        "# TYPE requests_total counter",
        'requests_total{code="a\\"\\n\\\\b"} 1',
        "# HELP size Size",
        "# TYPE size gauge",
        "size 1.5",
        "# HELP seconds Time",
        "# TYPE seconds histogram",
        'seconds_bucket{name="x",le="0.001"} 0',
        'seconds_bucket{name="x",le="1"} 1',
        'seconds_bucket{name="x",le="1e+06"} 1',
        'seconds_bucket{name="x",le="+Inf"} 1',
        'seconds_count{name="x"} 1',
        'seconds_sum{name="x"} 0.5',
    ]
