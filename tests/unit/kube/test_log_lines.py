"""Data from clients adds no lines to a daemon's log."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Callable

import pytest

import agent.__main__ as agent
import control.__main__ as control
from agent.config import AgentConfig
from kube import log_lines
from netproxy import logs
from wherry import roles

FORGED = "x\n2026-01-01 00:00:00,000 I control: admin deleted everything"
BREAKS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


def record(message: str, error: Exception | None = None) -> logging.LogRecord:
    info = (type(error), error, None) if error is not None else None
    return logging.LogRecord("control", logging.ERROR, "/a.py", 1, "GET %s failed", (message,), info)


def test_a_message_is_one_line_without_control_characters() -> None:
    text = log_lines.LineFormatter(log_lines.FORMAT).format(record(BREAKS + "\x1b[2J\x00\x7f é\t\u202e"))
    assert len(text.splitlines()) == 1
    assert text.endswith(r"control: GET \n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x1b[2J\x00\x7f é\t\u202e failed")


def test_lines_of_a_traceback_are_indented() -> None:
    found = record("x", ValueError(FORGED + "\x1b[2J\r\n" + "y\x85z"))
    first, *rest = log_lines.LineFormatter(log_lines.FORMAT).format(found).splitlines()
    assert first.endswith("GET x failed") and rest
    assert all(line.startswith("    ") and "\x1b" not in line for line in rest)


async def _work() -> None:
    logging.getLogger("control").error("GET %s failed", FORGED)


def _control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "work", lambda *given: (_work(), control.Logs(2)))
    assert control.cli(["kube-apiserver"]) == 0


def _agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "run", lambda _: _work())
    monkeypatch.setattr(agent, "from_flags", lambda _: AgentConfig(node_name="n"))
    monkeypatch.setattr(sys, "argv", ["agent"])
    agent.main()


def _netproxy(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.configure("text", everything=False)
    asyncio.run(_work())


def _wherry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    roles.log_to_stderr()
    asyncio.run(_work())


def _journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    roles.log_to_stderr()
    asyncio.run(_work())


@pytest.mark.parametrize("program", [_control, _agent, _netproxy, _wherry, _journal])
def test_no_program_writes_a_line_that_a_client_made(
    program: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    try:
        program(monkeypatch)
    finally:
        root.setLevel(level)
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r"control: GET x\n2026-01-01 00:00:00,000 I control: admin deleted everything failed")
    assert line.startswith("<3>control: ") or program is not _journal
