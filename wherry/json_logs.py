"""Log lines as JSON objects, the form of upstream's --logging-format=json: `ts` in seconds, `caller`, `msg`, `err`."""

from __future__ import annotations

import logging

import msgspec

from kube.log_lines import shortened


class JsonFormatter(logging.Formatter):
    """One object a line, whatever a message holds."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "caller": f"{record.module}.py:{record.lineno}",
            "msg": shortened(record.getMessage()),
        }
        if record.exc_info:
            line["err"] = shortened(str(record.exc_info[1] or ""))
            line["stacktrace"] = shortened(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()
