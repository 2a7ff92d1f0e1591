"""Base64 as Go's encoding/base64 decodes it for Kubernetes: padded, and line breaks in it are ignored."""

from __future__ import annotations

import binascii

_NO_BREAKS = {ord("\r"): None, ord("\n"): None}


def decode(text: str) -> bytes:
    """Return the bytes of a text; raises ValueError if it is not base64."""
    whole = without_breaks(text)
    if len(whole) % 4:  # a2b_base64 accepts padding behind whole groups
        raise ValueError("Incorrect padding")
    return binascii.a2b_base64(whole, strict_mode=True)


def canonical(text: str) -> str:
    """Return how Go encodes what a text encodes; raises ValueError if it is not base64.

    That is without line breaks, and with zeros for the bits that padding leaves over.
    """
    data, whole = decode(text), without_breaks(text)
    if not whole.endswith("="):
        return whole
    return whole[:-4] + binascii.b2a_base64(data[len(data) // 3 * 3 :], newline=False).decode()


def without_breaks(text: str) -> str:
    """Return a text without its line breaks."""
    return text.translate(_NO_BREAKS) if "\n" in text or "\r" in text else text
