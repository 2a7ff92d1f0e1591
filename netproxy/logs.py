"""Logs to standard error: text lines, or klog's JSON (`logging.format: json`)."""

from __future__ import annotations

import json
import logging

from kube import log_lines


class JSONLines(logging.Formatter):
    """One object a line, with klog's keys: ts in milliseconds, caller, msg, v or err."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": log_lines.shortened(record.getMessage()),
        }
        if record.levelno < logging.WARNING:
            line["v"] = 4 if record.levelno < logging.INFO else 0
        if record.exc_info:
            line["err"] = log_lines.shortened(self.formatException(record.exc_info))
        return json.dumps(line)


def configure(form: str, *, everything: bool) -> None:
    """Log from now on in this form, "text" or "json"."""
    handler = log_lines.handler("%(asctime)s %(levelname)s %(name)s: %(message)s")
    if form == "json":
        handler.setFormatter(JSONLines())
    logging.basicConfig(level=logging.DEBUG if everything else logging.INFO, handlers=[handler], force=True)
