"""Numbers in a query are those that Go reads: ASCII digits that fit 64 bits."""

import pytest

from control.auth.user import UserInfo
from control.http.exchange import Request
from control.server.list_options import MOST, read_options
from kube.errors import StatusError


async def nothing(limit: int) -> bytes:
    return b""


def request(query: str) -> Request:
    found = Request("GET", "/api/v1/pods", query.encode(), {}, nothing)
    found.user = UserInfo("jane")
    return found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid syntax"),
        ("x", "invalid syntax"),
        ("1_0", "invalid syntax"),
        ("%201", "invalid syntax"),
        ("1.5", "invalid syntax"),
        ("9223372036854775808", "value out of range"),
        ("9" * 5000, "value out of range"),
    ],
)
def test_what_is_no_number_is_refused_in_gos_words(text: str, problem: str) -> None:
    with pytest.raises(StatusError) as refused:
        request(f"limit={text}").number("limit")
    assert refused.value.code == 400 and refused.value.message.endswith(f": {problem}")


@pytest.mark.parametrize(("text", "limit"), [("5", 5), ("%2B5", 5), ("-1", 0), ("9223372036854775807", MOST)])
async def test_a_limit_below_zero_or_beyond_every_list_limits_nothing(text: str, limit: int) -> None:
    assert (await read_options(request(f"limit={text}"), None)).limit == limit
