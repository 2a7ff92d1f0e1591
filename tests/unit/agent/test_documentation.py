"""docs/agent.md names every flag and every setting that the agent reads."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import msgspec

from agent.flags import Flags
from agent.kubelet_configuration import KubeletConfiguration

TEXT = (Path(__file__).parents[3] / "docs/agent.md").read_text()


def test_every_flag_is_documented() -> None:
    assert [f.name for f in fields(Flags) if f"`--{f.name.replace('_', '-')}`" not in TEXT] == []


def test_every_setting_is_documented() -> None:
    names = [f.encode_name for f in msgspec.structs.fields(KubeletConfiguration)]
    missing = [name for name in names if f"`{name}`" not in TEXT and name not in ("apiVersion", "kind")]
    assert missing == []
