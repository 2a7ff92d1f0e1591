"""axe-core in a tab: finds obstacles for people with screen readers, keyboards or weak eyes."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from tests.support.chromium import Tab

MISSING = "axe-core-python is not installed: scripts/install --dev"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")


def script() -> str:
    """Return the text of axe-core."""
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None and found.submodule_search_locations, MISSING
    return Path(found.submodule_search_locations[0], "axe.min.js").read_text()


def violations(tab: Tab) -> list[str]:
    """Return what axe finds wrong in a tab: the rule, and the elements.

    axe itself checks the page by means that its policy forbids; those violations are none of the page's.
    """
    kept: list[Any] = list(tab.errors)
    if not tab.evaluate("Boolean(window.axe)"):
        tab.evaluate(f"{script()}\n;true")
    options = json.dumps({"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]})
    found = tab.evaluate(
        f"""window.axe.run(document, {options}).then((found) => found.violations.map((each) =>
        `${{each.id}}: ${{each.help}}: ${{each.nodes.map((node) => node.html.slice(0, 160)).slice(0, 4).join(' ')}}`))"""
    )
    tab.evaluate("window.violations = []")
    tab.errors[:] = kept
    return [str(each) for each in found]
