"""Values written as YAML, for clients that accept it."""

from __future__ import annotations

from typing import Any

import yaml

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml's, which is several times as fast as Python's and writes the same."""


def dump_yaml(value: Any) -> bytes:
    """Return a JSON value as a YAML document."""
    text: str = yaml.dump(value, Dumper=_DUMPER, sort_keys=False, default_flow_style=False)
    return text.encode()
