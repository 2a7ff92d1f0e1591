"""Handlers of commands and ports, and the logs that simulated containers write."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from wherry.testing.errors import ClusterError
from wherry.testing.nodes import log
from wherry.testing.nodes.exec_calls import Output, output_of
from wherry.testing.nodes.handlers import Handlers
from wherry.testing.nodes.log import ContainerLog

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_of_several_handlers_the_newest_that_matches_holds_for_its_kind_pod_container_and_port() -> None:
    handlers = Handlers()
    handlers.add_exec("web-*", len)
    handlers.add_exec("prod/web-*", max, container="side")
    handlers.add_port("web-*", 80, min)
    assert handlers.exec("prod", "web-0", "main") is len and handlers.exec("prod", "web-0", "side") is max
    assert handlers.exec("test", "web-0", "side") is len and handlers.exec("test", "db-0", "main") is None
    assert handlers.attach("test", "web-0", "main") is None
    assert handlers.port("test", "web-0", 80) is min and handlers.port("test", "web-0", 81) is None
    saved = handlers.saved()
    handlers.add_exec("*", sum)
    handlers.restore(saved)
    assert handlers.exec("test", "db-0", "main") is None


@pytest.mark.parametrize("address", [("10.0.0.1", 80), ("example.org", 80), ("::1", "x"), ("::1", 70000)])
def test_a_port_leads_to_loopback_only(address: tuple[str, int]) -> None:
    with pytest.raises(ClusterError, match="no loopback address"):
        Handlers().add_port("web-*", 80, address)


def test_what_a_handler_returns_is_an_output_or_its_short_form() -> None:
    def shown() -> str:
        return "query"

    assert output_of("text", shown) == Output("text") and output_of(None, shown) == Output()
    assert output_of(3, shown) == Output(exit_code=3)
    with pytest.raises(TypeError, match="query"):
        output_of([1], shown)  # type: ignore[arg-type]


def test_a_log_has_lines_by_position_and_drops_the_oldest_beyond_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    written = ContainerLog()
    written.write("", NOW)
    assert written.end == 0
    written.write("a\nb", NOW)
    written.write("\n", NOW, "stderr")
    assert written.text() == "a\nb\n\n" and written.tail(1) == 2 and written.tail(-1) == 0
    lines, position = written.after(1, 10)
    assert lines == [b"2030-01-01T00:00:00.000000Z stdout F b", b"2030-01-01T00:00:00.000000Z stderr F "]
    assert position == 3
    monkeypatch.setattr(log, "MOST_BYTES", 100)
    written.write("c\nd", NOW)
    assert written.text() == "c\nd\n" and written.tail(-1) == 3 and written.tail(100) == 3
    assert written.after(0, 1) == ([b"2030-01-01T00:00:00.000000Z stdout F c"], 4)


async def test_readers_wait_for_lines_and_for_the_end() -> None:
    written = ContainerLog()
    waiting = [asyncio.create_task(written.changed()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    written.write("a", NOW)
    await asyncio.gather(*waiting)
    last = asyncio.create_task(written.changed())
    await asyncio.sleep(0)
    written.close()
    await last
    await written.changed()
