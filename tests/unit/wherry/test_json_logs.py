from __future__ import annotations

import json
import logging
import sys

import pytest

from wherry.errors import WherryError
from wherry.json_logs import JsonFormatter
from wherry.settings import Settings, complete


def test_a_line_is_one_object_with_upstreams_names() -> None:
    record = logging.LogRecord("control.x", logging.WARNING, "/a/b.py", 7, 'two\nlines, "%s"', ("quoted",), None)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found = json.loads(text)
    assert (found["level"], found["logger"], found["caller"]) == ("warning", "control.x", "b.py:7")
    assert found["msg"] == 'two\nlines, "quoted"' and abs(found["ts"] - record.created) < 0.001


def test_a_failure_is_logged_with_its_origin() -> None:
    try:
        raise ValueError("lost")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "/a.py", 1, "it failed", (), sys.exc_info())
    found = json.loads(JsonFormatter().format(record))
    assert found["err"] == "lost" and "ValueError: lost" in found["stacktrace"]


def test_another_form_is_refused() -> None:
    with pytest.raises(WherryError, match="--logging-format xml: it is either text or json"):
        complete(Settings(logging_format="xml"), "192.0.2.1")
