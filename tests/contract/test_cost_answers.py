"""The largest input of every case of cost gets an answer of the API server: a Status of the client's fault, or a success.

An input that the reader refuses is refused; another rule may refuse others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from kube.errors import StatusError
from kube.value_count import TooManyValues
from tests.support.control import ApiUnderTest, api_server
from tests.support.cost import LARGEST, Case
from tests.support.cost_cases import CASES
from tests.support.cost_requests import CONFIG_MAPS, NAMESPACE, NOT_SENT, PODS, SENT, THING, pod
from tests.support.hollow import eventually
from tests.support.nesting import DEFINITIONS, THINGS

pytestmark = pytest.mark.asyncio(loop_scope="module")
IN_HEADS = (414, 431)
"""Codes of answers to a head that is too long, which are no Status."""
TOO_LARGE = b"etcdserver: request is too large"
"""Message of the 500 that upstream's server gives for an object that cannot be stored, which this one gives too."""
READ_LATER = ("certificate request", "host of a probe", "image", "path of a probe")
"""Families whose reader, a signer or a kubelet, comes after the API server, which takes what it refuses."""
FAMILIES: dict[str, list[Case]] = defaultdict(list)
for _case in CASES:
    FAMILIES[_case.name.partition(": ")[0]].append(_case)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        assert (await api.request("POST", DEFINITIONS, THING)).status == 201
        assert (await api.request("POST", CONFIG_MAPS, {"metadata": {"name": "here"}})).status == 201
        assert (
            await api.request("POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        ).status == 201
        assert (await api.request("POST", PODS, {**pod(), "metadata": {"name": "here"}})).status == 201

        async def served() -> bool:
            return (await api.request("GET", THINGS)).status == 200

        await eventually(served)
        yield api


def refusal(case: Case, given: object) -> int | None:
    """Return the code with which a reader refuses an input, 400 if it has none, None if it takes the input."""
    try:
        case.read(given)
    except StatusError as error:
        return error.code
    except TooManyValues:
        return 413
    except case.refused:
        return 400
    return None


@pytest.mark.parametrize("family", SENT)
async def test_the_largest_input_is_answered(
    server: ApiUnderTest, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    for case in FAMILIES[family]:
        given = case.build(min(case.largest, LARGEST))
        sent = SENT[family](given)
        try:
            answer = await server.request(sent.method, sent.path, sent.body, headers=sent.headers)
        except (ValueError, aiohttp.ClientError):  # a header that no client sends, or a head that is too long
            assert sent.method == "GET" or family == "Content-Type", case.name
            continue
        if TOO_LARGE in answer.body:
            continue
        assert answer.status < 500, (case.name, answer.status, answer.body[:300])
        refused = refusal(case, given)
        if refused is not None and family not in READ_LATER:
            assert answer.status >= 400, (case.name, refused, answer.status)
        if answer.status >= 400 and answer.status not in IN_HEADS:
            status = answer.json
            assert (status["kind"], status["code"]) == ("Status", answer.status), (case.name, answer.body[:300])
            if refused == 413 and family.startswith(("JSON of", "JSON within", "YAML", "protobuf")):
                assert answer.status == 413, (case.name, answer.body[:300])
    assert "RecursionError" not in caplog.text


async def test_every_family_of_cases_is_sent_or_comes_to_something_else() -> None:
    elsewhere = [name for names in NOT_SENT.values() for name in names]
    assert sorted([*SENT, *elsewhere]) == sorted(FAMILIES)
