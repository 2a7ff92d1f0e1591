"""The authorization properties over a socket: encoded paths, upgrades by GET and POST, bodies and watches as bytes on TLS."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.authorised.calls import Call
from tests.support.authorised.corpus import corpus
from tests.support.authorised.differences import known
from tests.support.authorised.judging import violations
from tests.support.authorised.running import world
from tests.support.authorised.sockets import Refused, over_sockets
from tests.support.authorised.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
FORMS = ("get", "watch", "patch", "delete", "act", "connect", "extend")
EXAMPLES = 15


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("api")) as made:
        over_sockets(made)
        yield made


def odd(call: Call) -> bool:
    """Return whether a request is one that a transport may read otherwise."""
    return call.upgrades or "%" in call.raw or "//" in call.raw or "/." in call.raw


@pytest.mark.parametrize("form", FORMS)
async def test_what_was_authorised_is_what_was_done(served: World, form: str) -> None:
    reached = 0
    chosen = [call for call in corpus(served, form, EXAMPLES * 4) if odd(call)][:EXAMPLES]
    for call in chosen:
        try:
            found = [text for text in await violations(served, call) if not known(call, text)]
        except Refused:
            continue
        assert not found, "\n  ".join([str(call), *found])
        reached += 1
    assert reached > len(chosen) / 2, f"the server took {reached} of {len(chosen)} requests"
