"""Authorized actions equal performed actions: for every request, in every form that the server understands.

No byte of and no change to an object comes about for which the authorizer did not say yes, no question is left out that
upstream asks, and every change was shown to admission as it is stored. The gate draws the same requests each time. For longer:
WHERRY_FUZZ_EXAMPLES=20000 draws as many others of each form, by the seed that `--hypothesis-seed` gives.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from random import Random

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.authorised import canaries
from tests.support.authorised.calls import Call
from tests.support.authorised.corpus import EACH, FORMS, corpus
from tests.support.authorised.differences import OPEN, Difference, known
from tests.support.authorised.judging import violations
from tests.support.authorised.running import world
from tests.support.authorised.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
EXAMPLES = int(os.environ.get("WHERRY_FUZZ_EXAMPLES", "0"))
AT_THE_GATE = 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("api")) as made:
        yield made


async def wrong_of(served: World, call: Call) -> list[str]:
    """Return what is wrong with a request beyond the differences that are known."""
    return [text for text in await violations(served, call) if not known(call, text)]


async def check(served: World, calls: list[Call]) -> None:
    """Send requests; fails with the shortest one that is served wrongly."""
    wrong = []
    for call in calls:
        found = await wrong_of(served, call)
        if found:
            wrong.append("\n  ".join([str(call), *found]))
    assert not wrong, f"{len(wrong)} requests, the shortest of them:\n{min(wrong, key=len)}"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("form", FORMS)
async def test_what_was_authorised_is_what_was_done(served: World, form: str) -> None:
    await check(served, corpus(served, form, AT_THE_GATE))


@pytest.mark.timeout(120)
async def test_it_is_so_for_some_verbs_of_every_resource(served: World) -> None:
    await check(served, corpus(served, EACH, 0)[::4])


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_it_is_so_for_every_verb_of_every_resource_and_part(served: World) -> None:
    await check(served, corpus(served, EACH, 0))


async def test_every_object_has_a_text_of_its_own_in_what_it_contains(served: World) -> None:
    for (target, namespace, name), own in served.seeds.items():
        obj = served.object(target, namespace, name) or {}
        contents = json.dumps({key: value for key, value in obj.items() if key not in ("metadata", "status")})
        if own and target.plural not in canaries.WITHOUT:
            assert own in canaries.texts(contents.encode()), f"{target.plural} {namespace}/{name}"


@pytest.mark.parametrize("difference", OPEN, ids=lambda difference: difference.name)
async def test_a_known_difference_is_there(served: World, difference: Difference) -> None:
    for form in difference.forms:
        for call in corpus(served, form, AT_THE_GATE):
            if any(known(call, text) == difference.name for text in await violations(served, call)):
                return
    pytest.fail("no request shows it any more, so its row can go")


if EXAMPLES:

    @pytest.mark.timeout(0)
    @pytest.mark.parametrize("form", FORMS)
    async def test_the_same_holds_of_many_more_requests(served: World, form: str) -> None:
        loop = asyncio.get_running_loop()

        @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.randoms(use_true_random=False))
        def one(rng: Random) -> None:
            call = FORMS[form](rng, served)
            found = asyncio.run_coroutine_threadsafe(wrong_of(served, call), loop).result(60)
            assert not found, "\n  ".join([str(call), *found])

        await asyncio.to_thread(one)
