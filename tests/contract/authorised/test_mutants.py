"""The properties detect the known faults: each is reintroduced, one changed line at a time, and must be caught.

Requests are those that the gate draws, of the forms that a mutant names; the first that shows it is enough.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.authorised.calls import Call
from tests.support.authorised.content_mutants import CONTENTS
from tests.support.authorised.corpus import EACH, FORMS, corpus
from tests.support.authorised.fault_mutants import FAULTS
from tests.support.authorised.judging import violations
from tests.support.authorised.mutants import Mutant, applied
from tests.support.authorised.other_mutants import OTHERS
from tests.support.authorised.running import world
from tests.support.authorised.world import World

pytestmark = pytest.mark.asyncio(loop_scope="module")
EXAMPLES = 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with world(tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture(scope="module")
def requests(served: World) -> dict[str, list[Call]]:
    return {form: corpus(served, form, EXAMPLES) for form in (*FORMS, EACH)}


@pytest.mark.parametrize("mutant", FAULTS + OTHERS + CONTENTS, ids=lambda mutant: mutant.name)
async def test_a_mutant_is_caught(served: World, requests: dict[str, list[Call]], mutant: Mutant) -> None:
    tried = 0
    for form in mutant.forms:
        for call in (each for each in requests[form] if mutant.path in each.raw):
            tried += 1
            with applied(mutant):
                found = await violations(served, call)
            if found and not set(found) <= set(await violations(served, call)):
                return
    pytest.fail(f"none of {tried} requests shows that {mutant.name}")
