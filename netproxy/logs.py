"""Logs to standard error: text lines, or upstream's JSON (`logging.format: json`)."""

from __future__ import annotations

import logging

from kube import log_lines
from kube.json_logs import JsonFormatter


def configure(form: str, *, everything: bool) -> None:
    """Log from now on in this form, "text" or "json"."""
    handler = log_lines.handler("%(asctime)s %(levelname)s %(name)s: %(message)s")
    if form == "json":
        handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.DEBUG if everything else logging.INFO, handlers=[handler], force=True)
