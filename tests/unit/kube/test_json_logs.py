"""Log lines of --logging-format=json: upstream's keys, whatever a message holds, by every daemon's command line."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agent.__main__ as agent
import control.__main__ as control
import netproxy.__main__ as netproxy
from control.flags.command import FlagError
from kube.json_logs import JsonFormatter
from wherry import roles
from wherry.errors import WherryError
from wherry.option_checks import complete
from wherry.settings import Settings


def line(level: int, message: str, *values: object, error: Exception | None = None) -> dict[str, Any]:
    info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord("control.x", level, "/a/b/c.py", 7, message, values, info)
    record.created = 1580306777.047281
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_is_one_object_with_upstreams_keys() -> None:
    found = line(logging.INFO, 'two\nlines, "%s"', "quoted")
    assert found == {"ts": 1580306777047.281, "caller": "b/c.py:7", "msg": 'two\nlines, "quoted"', "v": 0}


def test_the_verbosity_of_debug_messages_is_that_of_the_flag_that_enables_them() -> None:
    assert line(logging.DEBUG, "x")["v"] == 4


def test_a_warning_is_information_with_its_severity() -> None:
    found = line(logging.WARNING, "x")
    assert (found["v"], found["level"]) == (0, "warning")


def test_an_error_has_no_verbosity_and_its_cause() -> None:
    try:
        raise ValueError("lost")
    except ValueError as error:
        found = line(logging.ERROR, "it failed", error=error)
    assert "v" not in found and "level" not in found and found["err"] == "lost"
    assert "ValueError: lost" in found["stacktrace"]


def test_what_is_no_unicode_is_written_as_in_lines_for_people() -> None:
    name = os.fsdecode(b"/a/\xff\n")
    try:
        raise OSError(2, "lost", name)
    except OSError as error:
        found = line(logging.ERROR, "cannot remove %s", name, error=error)
    assert found["msg"] == "cannot remove /a/\\udcff\n"
    assert found["err"].endswith(repr(name)) and "\\udcff" in found["stacktrace"]


def test_a_cause_without_text_is_named() -> None:
    assert line(logging.ERROR, "it failed", error=TimeoutError())["err"] == "timed out"


def test_another_format_is_refused() -> None:
    with pytest.raises(WherryError, match="--logging-format xml: it is either text or json"):
        complete(Settings(logging_format="xml"), "192.0.2.1")
    with pytest.raises(FlagError, match="--logging-format: 'xml': must be one of text, json"):
        control.work("kube-scheduler", ["--logging-format=xml"])


async def _work() -> None:
    logging.getLogger("control").warning("it runs")


def _control(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(control.standalone, "run", lambda *given: _work())
    assert control.cli(["kube-scheduler", "--kubeconfig=/k", "--logging-format=json"]) == 0


def _agent(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(agent, "run", lambda _: _work())
    monkeypatch.setattr(sys, "argv", ["agent", "--kubeconfig=/k", "--logging-format=json"])
    agent.main()


def _agent_by_its_file(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    file = folder / "kubelet.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nlogging: {format: json, verbosity: 4}\n"
    )
    monkeypatch.setattr(agent, "run", lambda _: _work())
    monkeypatch.setattr(sys, "argv", ["agent", "--kubeconfig=/k", f"--config={file}"])
    agent.main()
    assert logging.getLogger().level == logging.DEBUG


def _netproxy(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(netproxy, "_serve", lambda _: _work())
    assert netproxy.cli(["--logging-format=json", "--kubeconfig=/k"]) == 0


def _wherry(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    roles.log_to_stderr(form="json")
    logging.getLogger("control").warning("it runs")


@pytest.mark.parametrize("program", [_control, _agent, _agent_by_its_file, _netproxy, _wherry])
def test_every_daemon_writes_this_form(
    program: Callable[[pytest.MonkeyPatch, Path], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    try:
        program(monkeypatch, tmp_path)
    finally:
        root.setLevel(level)
    lines = [json.loads(each) for each in stream.getvalue().splitlines()]
    (found,) = [each for each in lines if each["msg"] == "it runs"]
    assert {"ts", "caller", "msg", "v", "level"} == found.keys()
    assert found["caller"].startswith("kube/test_json_logs.py:")
