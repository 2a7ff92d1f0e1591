"""YAML answers are read as what they were written from."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from control.http.yaml_answer import dump_yaml

_TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["yes", "null", "~", "0x1f", "1e3", "=", "<<"]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(_VALUES)
def test_what_is_written_is_read_as_the_same_value(value: Any) -> None:
    assert yaml.safe_load(dump_yaml(value)) == value
