"""One request sent several times, under other answers of the authorizer each time, and what is wrong with what came of it.

First everything is allowed, but for what would make other questions needless: the questions are compared with upstream's, and
what was done with the questions and with what admission was shown. Then only the first question is answered with yes, then
none, then one for another object: nothing more may be done than that. All writes are reverted in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from control.auth.user import AuthzAttributes, Decision, UserInfo
from kube.journal import PATH as JOURNAL
from tests.support.authorised import effects, expected_questions, invariants
from tests.support.authorised.admitted import unadmitted
from tests.support.authorised.calls import Call
from tests.support.authorised.recording import Question, Record, question, recording
from tests.support.authorised.request_info import question_of, selectors_of
from tests.support.authorised.world import TURNS, Sent, World

Rule = Callable[[AuthzAttributes], bool]
GROUPS = ("staff", "system:authenticated")
MALLORY = UserInfo("mallory", "u-mallory", GROUPS)


async def violations(world: World, call: Call) -> list[str]:
    """Return what is wrong with how a request is served; no text where nothing is."""
    first = question_of(call)
    if call.user != MALLORY.name:
        return [f"as a node: {text}" for text in await _by_node(world, call, first)]
    found = [f"all allowed: {text}" for text in await _all_allowed(world, call, first)]
    neighbour = first._replace(name="b.c" if first.name != "b.c" else "a", namespace=first.namespace and "right")
    cases: list[tuple[str, Rule]] = [
        ("only the first allowed", _only(call, first)),
        ("nothing allowed", lambda attributes: False),
        (f"only {neighbour} allowed", _only(call, neighbour)),
    ]
    if first.path == JOURNAL:
        other = expected_questions.about_journal(call)._replace(namespace="right", name="b.c")
        cases.append((f"only the first and {other} allowed", lambda a: question(a) in (first, other)))
    for what, rule in cases:
        found += [f"{what}: {text}" for text in await _limited(world, call, rule)]
    return found


def _only(call: Call, allowed: Question) -> Rule:
    """Allow one question, and where the request acts as somebody, that it does."""

    def rule(attributes: AuthzAttributes) -> bool:
        return question(attributes) == allowed or attributes.verb == "impersonate"

    return rule


async def _run(world: World, call: Call, rule: Rule, user: UserInfo = MALLORY) -> tuple[Sent, Record]:
    world.authorizer.rule = rule
    headers = [(name.encode(), value.encode("latin-1")) for name, value in call.headers]
    if call.body:
        headers.append((b"content-length", str(len(call.body)).encode()))
    with recording() as record:
        async with asyncio.timeout(30):
            sent = await world.send(call.method, call.raw, call.query, headers, call.body, user)
    return sent, record


async def _all_allowed(world: World, call: Call, first: Question) -> list[str]:
    sent, record = await _run(world, call, lambda attributes: question(attributes) != expected_questions.ANY_FINALIZERS)
    acting = _acting(call)
    try:
        found = list(_questions(call, first, acting, sent, record))
        found += effects.unauthorised(world, record, sent, _text(call), record.yes(acting), _masters(call))
        found += unadmitted(call, first, record, sent)
        found += invariants.broken(world, call, record)
        return found
    finally:
        await world.undo(record)


async def _limited(world: World, call: Call, rule: Rule) -> list[str]:
    sent, record = await _run(world, call, rule)
    try:
        return list(effects.unauthorised(world, record, sent, _text(call), record.yes(_acting(call)), _masters(call)))
    finally:
        await world.undo(record)


async def _by_node(world: World, call: Call, first: Question) -> list[str]:
    node = world.api.auth.node

    def rule(attributes: AuthzAttributes) -> bool:
        return node.authorize(attributes)[0] is Decision.ALLOW

    before = invariants.readable_by_node(world)
    sent, record = await _run(world, call, rule, invariants.NODE)
    try:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        found = list(effects.unauthorised(world, record, sent, _text(call), record.yes(call.user)))
        found += unadmitted(call, first, record, sent)
        found += invariants.broken(world, call, record)
        found += invariants.beyond_its_pods(world, sent)
        grown = invariants.readable_by_node(world) - before
        return found + [f"the node's own write lets it read {what}" for what in sorted(grown)]
    finally:
        await world.undo(record)


def _acting(call: Call) -> str:
    return call.header("impersonate-user") or call.user


def _masters(call: Call) -> bool:
    return ("impersonate-group", "system:masters") in call.headers


def _text(call: Call) -> bytes:
    return call.raw.encode() + call.path.encode() + call.query.encode() + call.body + str(call.headers).encode()


def _questions(call: Call, first: Question, acting: str, sent: Sent, record: Record) -> Iterator[str]:
    """Compare what was asked with what upstream asks."""
    requested = [a for a in record.received if a.user == acting and not a.question.verb.startswith("impersonate")]
    if acting != call.user:
        yield from _impersonated(call, record)
    if not requested:
        yield f"no question to the authorizer, upstream asks {first}"
        return
    begun = requested[0].question
    if begun != first:
        yield f"the authorizer was asked {begun}, upstream asks {first}"
    elif first.resource and requested[0].selectors != selectors_of(call):
        yield f"the authorizer got the selectors {requested[0].selectors}, upstream's would get {selectors_of(call)}"
    groups: tuple[str, ...] = (
        GROUPS if acting == call.user else tuple(v for k, v in call.headers if k == "impersonate-group")
    )
    expected = set(expected_questions.further(call, first, sent, record, groups))
    found = {a.question for a in requested}
    for missing in sorted(expected - found):
        yield f"upstream asks also {missing}"
    review = first.group == "authorization.k8s.io"
    for more in sorted(found - expected - {first, begun}):
        if not review and not _of_no_consequence(more, sent):
            yield f"asked also {more}, which upstream does not ask"


def _of_no_consequence(more: Question, sent: Sent) -> bool:
    """Return whether a question may be asked in vain: what was asked for did not come about in the end."""
    return not 200 <= sent.status < 300


def _impersonated(call: Call, record: Record) -> Iterator[str]:
    """Yield what was not asked about acting as somebody: the user, each group, the uid, each extra."""
    requested = [a.question for a in record.received if a.user == call.user]
    whom: list[tuple[str, str]] = []
    for name, value in call.headers:
        if name == "impersonate-user" and not any("users" in kind or "accounts" in kind for kind, _ in whom):
            account = value.startswith("system:serviceaccount:")
            whom.append(("serviceaccounts", value.rpartition(":")[2]) if account else ("users nodes", value))
        elif name == "impersonate-group":
            whom.append(("groups", value))
        elif name == "impersonate-uid":
            whom.append(("uids", value))
        elif name.startswith("impersonate-extra-"):
            whom.append(("userextras", value))
    for resources, name in whom:
        names = (name, name.removeprefix("system:node:"))
        if not any(q.verb.startswith("impersonate") and q.resource in resources and q.name in names for q in requested):
            yield f"acted as {name} of {resources} without being asked about it"
