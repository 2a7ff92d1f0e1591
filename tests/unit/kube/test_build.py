from __future__ import annotations

import json
from pathlib import Path

from kube import build


def test_an_installed_copy_knows_what_it_was_made_from(tmp_path: Path) -> None:
    record = tmp_path / "build.json"
    record.write_text(json.dumps({"gitCommit": "abc", "buildDate": "2026-01-02T03:04:05Z", "gitTreeState": "clean"}))
    assert build._recorded(record) == build.Build("abc", "2026-01-02T03:04:05Z", "clean")
    assert build._recorded(tmp_path / "other.json") is None


def test_a_source_tree_reports_its_newest_commit(tmp_path: Path) -> None:
    log = tmp_path / ".git" / "logs" / "HEAD"
    log.parent.mkdir(parents=True)
    log.write_text("0 1 Jane Doe <j@example.com> 1 +0000\tcommit: a\n1 2 Jane <j@x> 1767323045 +0100\tcommit: b\tc\n")
    assert build._source_tree(tmp_path) == build.Build("2", "2026-01-02T03:04:05Z", "dirty")
    further = tmp_path / "further"
    further.mkdir()
    (further / ".git").write_text(f"gitdir: {tmp_path / '.git'}\n")
    assert build._source_tree(further) == build._source_tree(tmp_path)
    assert build._source_tree(tmp_path / "nothing") is None


def test_nothing_is_ever_empty() -> None:
    assert all((build.build().commit, build.build().date, build._archive().commit, build._archive().date))
