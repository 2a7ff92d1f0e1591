"""Labels of images that `wherry image load` imports: the names that an import has given them, in containerd's output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kube.process import Result
from wherry import containerd, image_loading
from wherry.settings import Settings

NAME, OTHER = "docker.io/library/app:1", "docker.io/library/other:1"
DIGEST, MOVED, ID, OTHER_ID = (f"sha256:{digit * 64}" for digit in "abcd")
OLD = f"unpacking {NAME} ({DIGEST})...done\n"
NEW = f"{NAME}   \tsaved\t\n└──manifest ({DIGEST[7:19]})   \tcomplete\t\nImporting\telapsed: 0.1 s\ttotal: 0.0 B\t(0.0 B/s)\n"


@pytest.mark.parametrize("printed", [OLD, NEW])
def test_only_names_that_the_import_has_given_are_found(printed: str) -> None:
    assert image_loading.imported(printed, {NAME: DIGEST, OTHER: DIGEST, ID: DIGEST}) == [NAME]
    assert image_loading.imported(printed, {NAME: MOVED, OTHER: DIGEST}) == [], "a pull has moved it"
    assert image_loading.imported("", {NAME: DIGEST}) == []


class Ctr:
    """`ctr`, by whose list CRI has given the image its ID after `known` lists."""

    def __init__(self, known: int | None, content: dict[str, object]) -> None:
        self.known, self.content, self.lists = known, content, 0
        self.labels = list[list[str]]()

    async def run(self, argv: list[str], **_: Any) -> Result:
        if "import" in argv:
            return Result(0, OLD, "")
        if "label" in argv:
            self.labels.append(argv[argv.index("label") + 1 :])
            return Result(0, "", "")
        if "content" in argv:
            found = self.content.get(argv[-1])
            return Result(0, json.dumps(found), "") if found is not None else Result(1, "", "not found")
        names = [NAME, ID] if self.known is not None and self.lists >= self.known else [NAME]
        self.lists += 1
        rows = (f"{name} type {MOVED if name == ID else DIGEST} 1.0 MiB linux/amd64 -" for name in names)
        return Result(0, "\n".join(["REF TYPE DIGEST SIZE PLATFORMS LABELS", *rows]), "")


MANIFEST = {"config": {"digest": ID}, "layers": [{"digest": OTHER_ID}]}
INDEX = {"manifests": [{"digest": OTHER_ID}, {"digest": MOVED}]}
"""The first platform is not in the archive."""


@pytest.mark.parametrize("content", [{DIGEST: MANIFEST}, {DIGEST: INDEX, MOVED: MANIFEST}])
@pytest.mark.parametrize("known", [0, 2, None])
async def test_the_id_is_labelled_with_a_name_as_soon_as_containerd_has_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    known: int | None,
    content: dict[str, object],
) -> None:
    """The ID may mean another manifest of the same image."""
    ctr = Ctr(known, content)
    monkeypatch.setattr(containerd, "run", ctr.run)
    monkeypatch.setattr(image_loading, "run", ctr.run)
    monkeypatch.setattr(image_loading, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(image_loading, "IDENTIFIED_SECONDS", 0.05)
    archive = tmp_path / "image.tar"
    archive.touch()
    assert await image_loading.load_archive(Settings(), archive) == [NAME]
    assert ctr.labels == ([] if known is None else [[ID, f"wherry.local/loaded/{NAME}=true"]])
    assert (f"as {NAME}: pods that use it may need credentials" in capsys.readouterr().err) is (known is None)


async def test_content_that_is_no_manifest_or_nests_gives_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    content: dict[str, object] = {DIGEST: {"manifests": [{"digest": DIGEST}]}, MOVED: [1], OTHER_ID: {"config": 5}}
    ctr = Ctr(0, content)
    monkeypatch.setattr(containerd, "run", ctr.run)
    monkeypatch.setattr(image_loading, "run", ctr.run)
    for digest in content:
        assert await image_loading._configurations(Settings(), digest) == set()
