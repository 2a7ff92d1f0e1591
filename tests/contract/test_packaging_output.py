"""Results of scripts/package in a folder whose owner has put links to other files there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "scripts" / "package"


def test_results_of_packaging_are_written_through_no_link(tmp_path: Path) -> None:
    (function,) = re.findall(r"^deliver\(\).*?^}$", PACKAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = ("a.deb", "b.whl", "c.tar")
    for folder in ("root", "scratch", "share"):
        (tmp_path / folder).mkdir()
    for name in names[:2]:
        (tmp_path / "root" / name).write_text("precious")
    for name in names:
        (tmp_path / "scratch" / name).write_text("built")
    for name, target in zip(names, ("root/a.deb", "root", "root/new"), strict=True):
        (tmp_path / "share" / name).symlink_to(tmp_path / target)
    files = " ".join(f"{tmp_path}/scratch/{name}" for name in names)
    script = f"set -euo pipefail\noutput={tmp_path}/share\n{function}\ndeliver {files}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{tmp_path}/share/{name}" for name in names]
    assert sorted(path.name for path in (tmp_path / "root").iterdir()) == ["a.deb", "b.whl"]
    for name in names:
        assert not (tmp_path / "share" / name).is_symlink() and (tmp_path / "share" / name).read_text() == "built"
        assert not (tmp_path / "root" / name).exists() or (tmp_path / "root" / name).read_text() == "precious"
