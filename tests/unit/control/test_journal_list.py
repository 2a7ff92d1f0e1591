"""The list of the journal: its slices, its end, its authorizations, and the answer to those without rights."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from control.auth.user import AuthzAttributes, Decision
from control.event_loop import pacing
from control.server import journal_kinds, journal_list
from kube.journal import BLOCK, DENIED, Journal, kind_key, resource_key
from kube.journal_lists import List
from tests.support.clock import FakeClock

DEFINITIONS, OBJECTS = 300, 5000


class Custom:
    """Definitions of custom kinds; counts how often they are gone through."""

    def __init__(self) -> None:
        self.scans = 0
        self._all = [SimpleNamespace(group=f"g{n}", kind=f"Kind{n}", plural=f"kind{n}s") for n in range(DEFINITIONS)]

    def every(self) -> list[Any]:
        self.scans += 1
        return self._all


class Rights:
    """Allows what is in a set of (verb, group, resource); records what was asked."""

    def __init__(self, *allowed: tuple[str, str, str]) -> None:
        self.allowed, self.asked = set(allowed), list[tuple[str, str, str]]()

    def authorize(self, wanted: AuthzAttributes) -> tuple[Decision, str]:
        self.asked.append((wanted.verb, wanted.group, wanted.resource))
        return Decision.ALLOW if self.asked[-1] in self.allowed else Decision.NO_OPINION, ""


async def listed(
    journal: Journal, rights: Rights, begin: float = 0.0, custom: Custom | None = None, **query: str
) -> List:
    request: Any = SimpleNamespace(
        user=SimpleNamespace(name="jane"), until_left=None, option=lambda name: query.get(name, "")
    )
    return await journal_list.listed(journal, custom or Custom(), rights, request, begin)  # type: ignore[arg-type]


def journal_of(number: int = OBJECTS, group: str = "g299", kind: str = "Kind299") -> Journal:
    journal = Journal(FakeClock())
    for index in range(number):
        journal.record(kind_key(group, kind), "default", f"o{index}", "nobody", "created", uid="x" * 36)
    return journal


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The entries between each two yields, on a clock on which each entry takes ten microseconds."""
    found, now = [0], [0.0]

    def perf_counter() -> float:
        now[0] += 0.00001
        found[-1] += 1
        return now[0]

    async def yield_to_loop() -> None:
        found.append(0)

    monkeypatch.setattr(pacing.time, "perf_counter", perf_counter)
    monkeypatch.setattr(pacing, "yield_to_loop", yield_to_loop)
    return found


@pytest.mark.parametrize("rights", [(), (("list", "g299", "kind299s"),)])
@pytest.mark.parametrize("namespace", ["", "default"])
async def test_a_journal_about_custom_objects_is_gone_through_in_slices(
    steps: list[int], rights: tuple[tuple[str, str, str], ...], namespace: str
) -> None:
    custom, authorizer = Custom(), Rights(*rights)
    found = await listed(journal_of(), authorizer, custom=custom, namespace=namespace, limit="500")
    assert len(found.entries) == (500 if rights else 0)
    assert custom.scans == 1 and len(authorizer.asked) <= 3
    assert max(steps) < 250
    if not rights:
        assert sum(steps) >= OBJECTS / BLOCK, "a block whose kinds may not be listed is passed over at once"


async def test_only_the_newest_end_is_gone_through() -> None:
    journal = journal_of()
    middle = journal.began + 100
    journal._seconds = lambda: middle  # type: ignore[method-assign]
    for index in range(10):
        journal.record(kind_key("", "Pod"), "default", f"new{index}", "nobody", "created")
    decoded = 0

    def count(data: bytes) -> Any:
        nonlocal decoded
        decoded += 1
        return decode(data)

    decode = journal_list.decoded
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_list, "decoded", count)
        found = await listed(journal, Rights(("list", "*", "*")), since=str(middle - 1))
        assert [each.name for each in found.entries] == [f"new{index}" for index in range(10)] and decoded == 10
        assert not found.more
        few = await listed(journal, Rights(("list", "*", "*")), limit="3")
        assert [each.name for each in few.entries] == ["new7", "new8", "new9"] and few.more and decoded == 14


async def test_entries_that_may_not_be_listed_or_are_too_new_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_list, "decoded", lambda data: pytest.fail("an entry was decoded"))
    assert (await listed(journal_of(), Rights())).entries == []
    assert (await listed(journal_of(), Rights(("list", "*", "*")), until="1")).entries == []


async def test_kinds_that_users_choose_are_one_authorization() -> None:
    journal = Journal(FakeClock())
    for index in range(2000):
        journal.record(resource_key(f"chosen{index}", f"any{index}"), DENIED, f"default/o{index}", "eve", "denied")
    authorizer = Rights(("list", "", "pods"))
    assert (await listed(journal, authorizer)).entries == [] and authorizer.asked == [("list", "*", "*")]
    assert len((await listed(journal, Rights(("list", "*", "*")))).entries) == journal_list.USUAL_ENTRIES


async def test_the_number_of_authorizations_is_limited() -> None:
    journal = Journal(FakeClock())
    for index in range(DEFINITIONS):
        journal.record(kind_key(f"g{index}", f"Kind{index}"), "default", "one", "jane", "created")
    authorizer = Rights(("list", "g299", "kind299s"))
    found = await listed(journal, authorizer)
    assert [each.kind for each in found.entries] == ["Kind299"] and found.more
    assert len(authorizer.asked) == journal_kinds.MOST_KINDS + 1


@pytest.mark.parametrize("namespace", ["there", "none", ""])
async def test_those_who_may_list_nothing_learn_nothing_about_a_namespace(namespace: str) -> None:
    journal = Journal(FakeClock())
    journal.record(kind_key("", "Pod"), "there", "web", "jane", "created")
    begin = journal.began + 50 if namespace == "there" else math.inf
    assert await listed(journal, Rights(), begin, namespace=namespace) == List([], journal.began, more=False)


async def test_those_who_may_get_a_namespace_learn_since_when_its_list_is_complete() -> None:
    journal = Journal(FakeClock())
    journal.record(kind_key("", "Secret"), "there", "web", "jane", "created")
    found = await listed(journal, Rights(("get", "", "namespaces")), journal.began + 50, namespace="there")
    assert found == List([], journal.began + 50, more=False)


async def test_entries_that_come_while_a_list_waits_are_neither_repeated_nor_cause_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal, blocks = journal_of(2000), list[str]()
    for number, block in enumerate(journal.newest("default")):
        blocks += [name for _, name, _ in block]
        journal.record(kind_key("", "Pod"), "default", f"late{number}", "jane", "created")
        journal._drop_oldest(journal._rings["default"], 1)
    assert blocks == [f"o{index}" for index in reversed(range(len(blocks) and 2000 - len(blocks), 2000))]
    assert len(blocks) >= 1990
