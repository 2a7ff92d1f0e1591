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


@given(st.binary(max_size=20), st.integers(0, 15), st.integers(0, 30))
def test_the_canonical_text_is_what_go_writes(data: bytes, spare: int, place: int) -> None:
    text = usual = base64.b64encode(data).decode()
    if padding := usual.count("="):  # set bits that are left over: two with one `=`, four with two
        alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        last = alphabet.index(usual[-padding - 1]) | spare & (3 if padding == 1 else 15)
        text = usual[: -padding - 1] + alphabet[last] + "=" * padding
    assert base64_text.canonical(text[:place] + "\r\n" + text[place:]) == usual
