"""Problems of names in upstream's words: lengths are in bytes, which only rules of labels say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kube import names

LONG = "a" * 254
CASES: list[tuple[Callable[[str], list[str]], str, str]] = [
    (names.dns1123_label, LONG, "must be no more than 63 characters"),
    (names.dns1123_subdomain, LONG, "must be no more than 253 characters"),
    (names.dns1035_label, LONG, "must be no more than 63 characters"),
    (names.config_map_key, LONG, "must be no more than 253 characters"),
    (names.label_value, LONG, "must be no more than 63 bytes"),
    (names.qualified_name, LONG, "name part must be no more than 63 bytes"),
    (names.qualified_name, f"{LONG}/a", "prefix part must be no more than 253 bytes"),
    (
        names.qualified_name,
        "a/b/c",
        "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
        "'example.com/MyName')",
    ),
]


@pytest.mark.parametrize(("check", "name", "expected"), CASES)
def test_names_are_refused_in_upstreams_words(check: Callable[[str], list[str]], name: str, expected: str) -> None:
    assert check(name) == [expected]
