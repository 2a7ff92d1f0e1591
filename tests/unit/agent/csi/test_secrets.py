from __future__ import annotations

import base64
from typing import Any

import pytest

from agent.csi import secrets
from agent.volumes.payload import VolumeError
from kube.api import core_v1


class Api:
    def __init__(self, **data: bytes) -> None:
        self.secret = core_v1.Secret(data={key: base64.b64encode(value).decode() for key, value in data.items()})

    async def get(self, *_: Any) -> core_v1.Secret:
        return self.secret


async def test_a_secret_is_given_to_the_driver_as_text() -> None:
    api = Api(user="müller".encode())
    assert await secrets.read(api, ("ns", "s")) == {"user": "müller"}  # type: ignore[arg-type]


async def test_a_secret_that_is_no_text_is_the_volumes_error() -> None:
    with pytest.raises(VolumeError, match="secret ns/s: the value of 'key' is no UTF-8 text"):
        await secrets.read(Api(key=b"\xff\xfe"), ("ns", "s"))  # type: ignore[arg-type]
