from __future__ import annotations

import msgspec

from control.registry.strategies import strategy_for
from control.server.forms import Form
from control.server.negotiate import Wanted
from control.storage.entry import Entry
from control.storage.watcher import Notice
from kube import resources
from kube.clock import FakeClock


async def test_ages_in_a_watched_table_count_to_when_the_row_is_made() -> None:
    clock, configmaps = FakeClock(), resources.by_path("", "v1", "configmaps")
    assert configmaps is not None
    form = Form(Wanted(form="table"), strategy_for(configmaps), "None", clock)
    data = b'{"kind":"ConfigMap","metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:10Z"}}'
    notice = Notice("ADDED", Entry("/registry/configmaps/default/a", 2, data, lambda obj: {}))
    await clock.advance(15)
    first = msgspec.json.decode(form.event(notice))
    await clock.advance(60)
    second = msgspec.json.decode(form.event(notice))
    assert [event["object"]["rows"][0]["cells"] for event in (first, second)] == [["a", 0, "5s"], ["a", 0, "65s"]]
