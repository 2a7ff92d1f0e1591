"""Files with the state of a cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from wherry.testing.errors import ClusterError
from wherry.testing.saving import cluster_state
from wherry.testing.saving.cluster_state import ClusterState


def state(**keys: str) -> ClusterState:
    return ClusterState(datetime(2026, 1, 1, tzinfo=UTC), "real", 1, keys, [], [], [], [])


def test_keys_are_written_with_their_names(tmp_path: Path) -> None:
    keys = {"ca.crt": "a", "front-proxy-ca.key": "b", "sa.pub": "c"}
    cluster_state.write(tmp_path / "file", state(**keys))
    cluster_state.read(tmp_path / "file").write_keys(tmp_path / "pki")
    assert {each.name: each.read_text() for each in (tmp_path / "pki").iterdir()} == keys


@pytest.mark.parametrize(
    "name", ["..", "", "a\0b", "../../ca.crt", "/etc/ca.crt", "ca", ".crt", "ca.crt\n", "x" * 300 + ".crt"]
)
def test_a_key_with_the_name_of_no_such_file_is_refused(tmp_path: Path, name: str) -> None:
    cluster_state.write(tmp_path / "file", state(**{name: "x"}))
    with pytest.raises(ClusterError, match="file is damaged: there is no key or certificate with the name") as caught:
        cluster_state.read(tmp_path / "file")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
