"""Answers of other servers are read to a limit: no module reads one whole, except for the connections to a trusted server."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WHOLE = re.compile(r"await \w*(?:answer|response|reply)\w*\.(?:read|text|json)\(\)")
TRUSTED = {"kube/connections.py": 1}
"""Modules that may read answers whole, and how often: there a request without a limit is one to the API server."""


def test_no_answer_is_read_without_a_limit() -> None:
    found = {}
    for package in ("agent", "control", "cri", "kube", "netproxy", "wherry"):
        for path in (ROOT / package).rglob("*.py"):
            if number := len(WHOLE.findall(path.read_text())):
                found[str(path.relative_to(ROOT))] = number
    assert found == TRUSTED


def test_a_read_is_found_in_any_of_its_forms() -> None:
    for line in ("data = await answer.read()", "return await response.json()", "x = await the_reply.text()"):
        assert WHOLE.search(line)
    assert not WHOLE.search("await bounded_answer.read(answer, limit)")
