"""Labels of images that `wherry image load` imports: the names that an import has given them, in containerd's output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kube.process import Result
from wherry import containerd, image_loading
from wherry.settings import Settings

NAME, OTHER = "docker.io/library/app:1", "docker.io/library/other:1"
DIGEST, MOVED, ID = (f"sha256:{digit * 64}" for digit in "abc")
OLD = f"unpacking {NAME} ({DIGEST})...done\n"
NEW = f"{NAME}   \tsaved\t\n└──manifest ({DIGEST[7:19]})   \tcomplete\t\nImporting\telapsed: 0.1 s\ttotal: 0.0 B\t(0.0 B/s)\n"


@pytest.mark.parametrize("printed", [OLD, NEW])
def test_only_names_that_the_import_has_given_are_found(printed: str) -> None:
    assert image_loading.imported(printed, {NAME: DIGEST, OTHER: DIGEST, ID: DIGEST}) == [NAME]
    assert image_loading.imported(printed, {NAME: MOVED, OTHER: DIGEST}) == [], "a pull has moved it"
    assert image_loading.imported("", {NAME: DIGEST}) == []


@pytest.mark.parametrize("known", [0, 2, None])
async def test_a_name_is_labelled_with_the_id_as_soon_as_containerd_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], known: int | None
) -> None:
    labels, lists = list[list[str]](), 0

    async def run(argv: list[str], **_: Any) -> Result:
        nonlocal lists
        if "import" in argv:
            return Result(0, OLD, "")
        if "label" in argv:
            labels.append(argv[argv.index("label") + 1 :])
            return Result(0, "", "")
        names = [NAME, ID] if known is not None and lists >= known else [NAME]
        lists += 1
        return Result(0, "\n".join(["REF TYPE DIGEST SIZE", *(f"{name} type {DIGEST} 1.0 MiB" for name in names)]), "")

    monkeypatch.setattr(containerd, "run", run)
    monkeypatch.setattr(image_loading, "run", run)
    monkeypatch.setattr(image_loading, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(image_loading, "IDENTIFIED_SECONDS", 0.05)
    archive = tmp_path / "image.tar"
    archive.touch()
    assert await image_loading.load_archive(Settings(), archive) == [NAME]
    assert labels == ([] if known is None else [[NAME, f"wherry.local/loaded={ID}"]])
    assert (f"as {NAME}: pods that use it may need credentials" in capsys.readouterr().err) is (known is None)
