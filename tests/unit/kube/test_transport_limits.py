from __future__ import annotations

from typing import Any

import pytest

from kube.connections import AnswerTooLong
from kube.errors import StatusError
from kube.kubeconfig import Access
from kube.transport import HttpsTransport


class Connections:
    """Answers with ten bytes, and reads no more than the limit."""

    async def request(self, *request: Any) -> tuple[int, dict[str, str], bytes]:
        if request[-1] < 10:
            raise AnswerTooLong
        return 200, {}, b"A" * 10


async def test_an_answer_longer_than_its_caller_wants_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = HttpsTransport(Access(server="https://api.example.com"))
    monkeypatch.setattr(transport, "_to", lambda server: Connections())
    assert len((await transport.request("GET", "/apis/g/v1/x", most_bytes=10)).body) == 10
    with pytest.raises(StatusError, match="the answer to GET /apis/g/v1/x is longer than 9 bytes"):
        await transport.request("GET", "/apis/g/v1/x", most_bytes=9)
