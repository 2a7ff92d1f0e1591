"""Expressions on the event loop: together they cost a little; what costs more is evaluated by the thread for large objects."""

import threading
from typing import Any

import pytest

from control.auth.authorizers import Link, RetryingAuthorizer, UnionAuthorizer, decide
from control.auth.user import AuthzAttributes, Decision, UserInfo
from control.auth.webhooks.access import Settings, WebhookAuthorizer
from control.cel import BudgetExceeded, Declarations, Program, compile
from control.cel.types import DYN
from control.event_loop import inline, offload
from tests.support.clock import FakeClock

NUMBERS = {"object": list(range(100))}
SQUARE = "object.all(a, object.all(b, a + b >= 0))"


def program(expression: str) -> Program:
    return compile(expression, Declarations({"object": DYN}))


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Return what evaluations have cost, by the thread in which they were."""
    costs: dict[str, list[int]] = {"loop": [], "thread": []}
    original = inline.spent

    def spent(cost: int) -> None:
        costs["loop" if threading.current_thread() is threading.main_thread() else "thread"].append(cost)
        original(cost)

    monkeypatch.setattr(inline, "spent", spent)
    return costs


async def test_what_costs_little_is_evaluated_at_once(evaluated: dict[str, list[int]]) -> None:
    assert await offload.evaluate("ann", 0, lambda: program("object.all(a, a >= 0)").evaluate(NUMBERS).value) is True
    assert evaluated["thread"] == [] and 0 < evaluated["loop"][0] <= inline.MOST


async def test_what_costs_much_stops_at_the_limit_and_is_evaluated_by_the_thread(
    evaluated: dict[str, list[int]],
) -> None:
    square = program(SQUARE)
    for costs in evaluated.values():
        costs.clear()  # of its compilation
    assert await offload.evaluate("ann", 0, lambda: square.evaluate(NUMBERS).value) is True
    (loop,), (thread,) = evaluated["loop"], evaluated["thread"]
    assert inline.MOST < loop < inline.MOST + 100 and thread > 10 * inline.MOST


async def test_many_expressions_that_cost_little_have_one_limit_together(evaluated: dict[str, list[int]]) -> None:
    each = program("object.all(a, a >= 0)")

    def work() -> int:
        return sum(each.evaluate(NUMBERS).value for _ in range(1000))

    assert await offload.evaluate("ann", 0, work) == 1000
    assert sum(evaluated["loop"]) < inline.MOST + 1000 and len(evaluated["thread"]) == 1000


async def test_upstreams_limit_is_the_same_in_the_thread() -> None:
    with pytest.raises(BudgetExceeded):
        await offload.evaluate("ann", 0, lambda: program(SQUARE).evaluate(NUMBERS, 20_000))
    with pytest.raises(BudgetExceeded):
        await offload.evaluate("ann", 0, lambda: program(SQUARE).evaluate(NUMBERS, 20))


async def test_an_error_that_is_absorbed_does_not_hide_that_the_limit_was_passed(
    evaluated: dict[str, list[int]],
) -> None:
    assert await offload.evaluate("ann", 0, lambda: program(f"{SQUARE} || true").evaluate(NUMBERS).value) is True
    assert evaluated["thread"]


async def test_work_outside_of_the_event_loops_requests_has_no_limit(evaluated: dict[str, list[int]]) -> None:
    assert program(SQUARE).evaluate(NUMBERS).value is True
    assert inline.left() is None


async def test_an_authorizer_is_called_only_on_the_event_loop() -> None:
    requested = list[str]()

    class Authorizer:
        def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
            requested.append(threading.current_thread().name)
            return Decision.ALLOW, attributes.verb

    retrying = RetryingAuthorizer(Authorizer())

    def work() -> Any:
        return [retrying.authorize(AuthzAttributes(user=UserInfo("ann"), verb=verb)) for verb in ("get", "list", "get")]

    answers = await retrying.settled(lambda: offload.apart("ann", work))
    assert [why for _, why in answers] == ["get", "list", "get"]
    assert requested == [threading.main_thread().name] * 2


class _Client:
    """An authorization webhook that allows everything."""

    calls = 0

    async def ask(self, review: Any, wanted: Any) -> dict[str, Any]:
        self.calls += 1
        return {"allowed": True}


@pytest.mark.parametrize(("groups", "apart"), [(2, False), (200, True)])
async def test_conditions_of_an_authorization_webhook_that_cost_much_are_evaluated_by_the_thread(
    evaluated: dict[str, list[int]], groups: int, apart: bool
) -> None:
    text = "request.groups.all(a, request.groups.all(b, a + b != ''))"
    condition, client = compile(text, Declarations({"request": DYN})), _Client()
    settings = Settings("hook", conditions=(condition,))
    webhook = WebhookAuthorizer(client, settings, FakeClock())  # type: ignore[arg-type]
    union = UnionAuthorizer([Link("Webhook", "hook", webhook)])
    ann = UserInfo("ann", groups=tuple(f"g{number}" for number in range(groups)))
    for _ in range(3):
        assert (await decide(union, AuthzAttributes(user=ann, verb="get", resource="pods")))[0] is Decision.ALLOW
    assert bool(evaluated["thread"]) is apart and client.calls == 1
    assert max(evaluated["loop"]) < inline.MOST + 100


def test_limited_work_inside_of_limited_work_has_no_limit_of_its_own() -> None:
    def outer() -> None:
        inline.spent(inline.MOST - 10)
        inline.limited(lambda: inline.spent(5))
        assert inline.left() == 5
        inline.limited(lambda: inline.spent(6))

    with pytest.raises(inline.TooMuchHere):
        inline.limited(outer)
    assert inline.left() is None
