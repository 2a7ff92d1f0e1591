"""Names of nodes as they are dialled."""

from __future__ import annotations

import pytest

from control.dialing.node_dialer import Endpoint, address_of
from kube.errors import StatusError
from tests.support.cost_cases.inputs import combining


@pytest.mark.parametrize("host", ["a" * 254, combining()(62000)])
async def test_a_name_that_is_too_long_for_a_host_is_not_looked_up(host: str) -> None:
    with pytest.raises(StatusError) as raised:
        await address_of(Endpoint("n", host, 10250))
    assert (raised.value.code, str(raised.value)) == (500, f"error dialing backend: lookup {host}: no such host")
