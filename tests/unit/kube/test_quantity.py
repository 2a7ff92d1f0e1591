from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import quantity


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("0", "0"),
        ("100m", "0.1"),
        ("1", "1"),
        ("1.5Gi", str(3 * 2**29)),
        ("1Ki", "1024"),
        ("2k", "2000"),
        ("1e3", "1000"),
        ("12E", "12e18"),
        ("-5", "-5"),
        (".5", "0.5"),
        ("1n", "1e-9"),
        ("0.0000000001", "1e-9"),
        (3, "3"),
        (0.25, "0.25"),
    ],
)
def test_a_quantity_is_read_exactly(text: quantity.Quantity, exact: str) -> None:
    assert quantity.parse(text) == Decimal(exact)


@pytest.mark.parametrize("text", ["", "abc", "1Kb", "1 Gi", "1.2.3", "--1", "1i", "m", "\u0663", "1e\u0663"])
def test_what_is_no_quantity_is_refused_in_upstreams_words(text: str) -> None:
    with pytest.raises(quantity.QuantityError, match="quantities must match the regular expression"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1024Mi", "1Gi"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("1000Ki", "1000Ki"),
        ("0", "0"),
        ("0Gi", "0"),
        ("1e3", "1e3"),
        ("100", "100"),
        ("0.1Ki", "102400m"),
        ("512", "512"),
    ],
)
def test_a_quantity_is_printed_as_upstream_prints_it(text: str, canonical: str) -> None:
    assert quantity.canonical(text) == canonical


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_the_canonical_form_has_the_same_value_and_is_its_own_canonical_form(number: int, suffix: str) -> None:
    text = f"{number}{suffix}"
    printed = quantity.canonical(text)
    assert quantity.parse(printed) == quantity.parse(text)
    assert quantity.canonical(printed) == printed


def test_whole_units_and_thousandths_are_rounded_up() -> None:
    assert quantity.value("100m") == 1
    assert quantity.value("1500m") == 2
    assert quantity.milli("0.0001") == 1
    assert quantity.milli("250m") == 250


@pytest.mark.parametrize("text", ["1e1001", "1e9999999", "1E99999999999999999999", "9" * 1021])
def test_amounts_of_nothing_are_refused_before_they_are_computed(text: str) -> None:
    with pytest.raises(quantity.QuantityError):
        quantity.canonical(text)


def test_large_and_long_quantities_are_exact() -> None:
    assert quantity.canonical("999999999999999999999999999999e9") == "999999999999999999999999999999e9"
    assert quantity.canonical("99999999999999999999999999999999.5") == "99999999999999999999999999999999500m"
    assert quantity.canonical("1e-99999999") == "1e-9"
    assert len(quantity.canonical("1e999")) == 985


@pytest.mark.parametrize(
    ("amounts", "total"),
    [
        (["100m", "900m"], "1"),
        (["1Gi", "512Mi"], "1536Mi"),
        (["0", "1Gi"], "1Gi"),
        (["10m", "20m", "5n"], "30000005n"),
        (["1k", "24"], "1024"),
        (["1024Mi"], "1024Mi"),
        (["0", "0Gi"], "0"),
    ],
)
def test_a_sum_is_exact_and_has_the_form_of_the_first_that_is_not_zero(amounts: list[str], total: str) -> None:
    assert quantity.total(amounts) == total


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("1e1000", quantity.MOST, quantity.MOST),
        ("-1e1000", -quantity.MOST, -quantity.MOST),
        ("9223372036854775806", quantity.MOST - 1, quantity.MOST),
        ("9223372036854775808", quantity.MOST, quantity.MOST),
        ("1e16", 10**16, quantity.MOST),
        ("100Ei", quantity.MOST, quantity.MOST),
        ("1e-1000", 1, 1),
    ],
)
def test_whole_units_and_thousandths_fit_into_64_bits(text: str, value: int, milli: int) -> None:
    assert (quantity.value(text), quantity.milli(text)) == (value, milli)


@pytest.mark.parametrize(("text", "shown"), [("8Ei", "9223372036854775807"), ("-999999Ei", "-9223372036854775807")])
def test_quantities_with_binary_suffixes_have_a_maximum(text: str, shown: str) -> None:
    assert quantity.canonical(text) == shown
    assert quantity.canonical("7Ei") == "7Ei" and quantity.canonical("100E") == "100E"


@pytest.mark.parametrize("family", ["decimal", "binary", "exponent"])
@pytest.mark.parametrize(
    "text", ["50000000000000000e1000", "1e1000", "9" * 1000, "-" + "9" * 999, "1e-9", "9" * 999 + "E"]
)
def test_what_is_printed_of_the_largest_sums_can_be_parsed(text: str, family: str) -> None:
    number = quantity.parse(text)
    for some in (2, 1000):
        total = Decimal(0)
        for part in (number,) * some + (quantity.parse("1n"),):
            total = quantity.plus(total, part)
        printed = quantity.render(total, family)
        assert quantity.parse(printed) == total or abs(quantity.parse(printed)) in (quantity.LARGEST, quantity.MOST)
    assert quantity.canonical(quantity.canonical(text)) == quantity.canonical(text)
