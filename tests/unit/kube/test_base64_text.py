"""Base64 as Go decodes it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import base64_text


@given(st.binary(), st.lists(st.tuples(st.integers(0, 400), st.sampled_from(("\n", "\r\n")))))
def test_what_is_encoded_is_decoded_with_any_line_breaks(data: bytes, breaks: list[tuple[int, str]]) -> None:
    text = base64.b64encode(data).decode()
    for place, characters in breaks:
        text = text[:place] + characters + text[place:]
    assert base64_text.decode(text) == data


@pytest.mark.parametrize("text", ["YQ", "YQ=", "YWJj=", "YQ==YQ==", "Y Q==", "YQ==\t", "=YQ=", "Y=Q=", "YWJj!", "ä"])
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        base64_text.decode(text)


def test_bits_that_padding_leaves_over_are_ignored() -> None:
    assert base64_text.decode("YR==") == b"a"
