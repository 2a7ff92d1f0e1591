"""Selectors of watches: their look-up by values, their equality, and the same matches as a comparison with each change."""

from __future__ import annotations

import random
from typing import Any

import pytest

from control.http.exchange import Request
from control.server.list_options import ListOptions, read_options
from control.storage import codec
from control.storage.entry import Entry
from control.storage.selector import Required
from control.storage.watched_folder import WatchedFolder
from control.storage.watcher import Change, Watcher
from control.storage.watcher_group import Account
from kube import selectors

from .test_query_selectors import listed

TERMS = ["app=web", "app in (web,db)", "app!=web", "app", "!app", "tier notin (a,b)", "tier in (a)", "app=", "n>3"]
FIELDS = ["", "spec.nodeName=n1", "spec.nodeName=", "spec.nodeName!=n1", "metadata.name=a", "metadata.namespace=shop"]


def options(labels: str = "", fields: str = "") -> ListOptions:
    return ListOptions(selectors.parse_labels(labels), selectors.parse_fields(fields))


@pytest.mark.parametrize(
    "labels, fields, required",
    [
        ("app=web", "", ("labels", "app", {"web"})),
        ("x,app in (b,a)", "", ("labels", "app", {"a", "b"})),
        ("app=web", "spec.nodeName=n1", ("fields", "spec.nodeName", {"n1"})),
        ("app=web", "metadata.namespace=shop", ("labels", "app", {"web"})),
        ("x", "metadata.namespace=shop", ("fields", "metadata.namespace", {"shop"})),
        ("app!=web,x,!y,n>3", "spec.nodeName!=n1", None),
        (f"app in ({','.join(map(str, range(9)))})", "", None),
    ],
)
def test_a_selector_is_looked_up_by_values_that_all_matches_have(
    labels: str, fields: str, required: tuple[Any, ...] | None
) -> None:
    selector = options(labels, fields).selector()
    assert selector is not None
    expected = None if required is None else Required(required[0], required[1], frozenset(required[2]))
    assert selector.required == expected


def test_no_selector_is_none() -> None:
    assert options().selector() is None


def _state(chosen: random.Random) -> Entry | None:
    labels = {
        name: chosen.choice(["", "web", "db", "a", "5"]) for name in ("app", "tier", "n") if chosen.random() < 0.6
    }
    metadata = {"name": chosen.choice("ab"), "namespace": chosen.choice(["shop", "other"]), "labels": labels}
    obj = {"metadata": metadata, "spec": {"nodeName": chosen.choice(["", "n1", "n2"])}}
    entry = Entry("/registry/pods/x", 1, codec.encode(obj), lambda obj: {"spec.nodeName": obj["spec"]["nodeName"]})
    return entry if chosen.random() < 0.9 else None


def test_what_is_looked_up_and_compared_is_what_a_comparison_of_all_finds() -> None:
    chosen, folder, account = random.Random(1), WatchedFolder(), Account("jane")
    every = [options(",".join(chosen.sample(TERMS, count)), fields) for count in (0, 1, 2, 3) for fields in FIELDS]
    wanted = [(each, selector) for each in every if (selector := each.selector()) is not None]
    groups = {}
    for each, selector in wanted:
        group = folder.group(selector, account, 10)
        folder.add(Watcher(0, bookmarks=False, unregister=lambda watcher: None), group)
        groups[group] = each
    found = 0
    for _ in range(2000):
        now, before = _state(chosen), _state(chosen)
        if now is None and before is None:
            continue
        change = Change("/registry/pods/x", 2, now, before)
        affected = folder.affected(change)
        assert len(affected) == len(set(affected))
        for group, each in groups.items():
            expected = Change("/registry/pods/x", 2, now, before).event_for(each.predicate())
            event = group.evaluate(change) if group in affected else None
            assert (event and event.type) == (expected and expected.type)
            found += event is not None
    assert found > 2000


async def test_queries_with_the_same_text_have_equal_selectors() -> None:
    texts = ["labelSelector=a%3Db", "labelSelector=a%3Db", "labelSelector=a%3Dc", "fieldSelector=metadata.name%3Db"]
    requests: list[Request] = [listed(text) for text in texts]
    keys = [selector.key for request in requests if (selector := (await read_options(request, None)).selector())]
    assert len(keys) == 4 and keys[0] == keys[1] is not None and len(set(keys)) == 3
