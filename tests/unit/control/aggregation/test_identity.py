"""Headers that tell an extension server the user: no value may be read as another one."""

from __future__ import annotations

import pytest

from control.aggregation.remote import identity
from control.auth.user import UserInfo
from kube.errors import StatusError


@pytest.mark.parametrize("text", [" system:masters", "system:masters ", "\tsystem:masters", "a\r\nb", "a\0"])
def test_a_value_that_would_be_read_as_another_is_refused(text: str) -> None:
    users = (UserInfo(text), UserInfo("a", text), UserInfo("a", "", (text,)), UserInfo("a", extra={"k": (text,)}))
    for user in users:
        with pytest.raises(StatusError, match="cannot be sent to an extension server") as caught:
            identity(user)
        assert caught.value.code == 400


def test_blanks_inside_a_value_are_sent() -> None:
    assert identity(UserInfo("Jane Doe")) == [(b"X-Remote-User", b"Jane Doe")]
