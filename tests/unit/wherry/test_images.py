"""`wherry image save` and `wherry image load` in folders that other accounts may write."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from kube.process import CommandError, Result
from wherry import containerd, image_commands, image_loading, images
from wherry.errors import WherryError
from wherry.progress import Progress
from wherry.settings import Settings

REQUIRE_RUNNING = containerd.require_running
NAME = "docker.io/library/app:1"
LIST = f"REF TYPE DIGEST SIZE PLATFORMS LABELS\n{NAME} type sha256:aa 1.0 MiB linux/amd64 -\n"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_commands, "root", lambda: None)
    monkeypatch.setattr(image_commands, "installed", lambda prefix: None)
    monkeypatch.setattr(images, "ctr", lambda settings: ["ctr"])
    monkeypatch.setattr(containerd, "require_running", lambda settings: None)


def write_to(output: str, stdout: int) -> None:
    if output == "-":
        os.write(stdout, b"archive")
    else:
        Path(output).write_bytes(b"archive")


def exporting(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> None:
    """Have ctr write an archive to a path, or to its output for "-"."""

    async def run(argv: list[str], *, stdout: int = -1, **_: Any) -> Result:
        if "export" in argv:
            write_to(argv[argv.index("export") + 1], stdout)
            if fails:
                raise CommandError(argv, "exit status 1")
        return Result(0, LIST, "")

    monkeypatch.setattr(images, "run", run)


def test_an_archive_is_new_and_only_its_owner_may_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporting(monkeypatch)
    path = tmp_path / "app.tar"
    image_commands.image_save(path, [NAME])
    assert path.read_bytes() == b"archive" and stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(WherryError, match="exists: remove it or name another file"):
        image_commands.image_save(path, [NAME])
    with pytest.raises(WherryError, match="cannot be written: no such file or directory: check the path"):
        image_commands.image_save(tmp_path / "none/app.tar", [NAME])


def test_no_link_is_followed_where_an_archive_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporting(monkeypatch)
    (tmp_path / "app.tar").symlink_to(tmp_path / "target")
    with pytest.raises(WherryError, match="exists"):
        image_commands.image_save(tmp_path / "app.tar", [NAME])
    assert not (tmp_path / "target").exists()


def test_an_archive_that_cannot_be_completed_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporting(monkeypatch, fails=True)
    with pytest.raises(CommandError):
        image_commands.image_save(tmp_path / "app.tar", [NAME])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("what", "loaded"),
    [
        ("web.tar", "archive"),
        ("images/web.tgz", "archive"),
        ("web.tar.gz", "archive"),
        ("web.tar.zst", "archive"),
        ("web.TAR.xz", "archive"),
        ("web.tzst", "archive"),
        ("./web", "archive"),
        ("/tmp/web", "archive"),
        ("web", "image"),
        ("registry.example/web:1", "image"),
        ("registry.example/web.tar:1", "image"),
        ("registry.example/web.target", "image"),
    ],
)
def test_only_what_is_named_as_an_archive_is_loaded_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, loaded: str
) -> None:
    found = list[str]()

    async def load_archive(settings: Any, path: Path, progress: Progress) -> list[str]:
        found.append("archive")
        return []

    async def load_from_docker(settings: Any, image: str, progress: Progress) -> list[str]:
        found.append("image")
        raise WherryError("no image")

    monkeypatch.setattr(containerd, "require_archive", lambda archive: None)
    monkeypatch.setattr(image_loading, "load_archive", load_archive)
    monkeypatch.setattr(image_loading, "load_from_docker", load_from_docker)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web").write_text("somebody's")
    if loaded == "archive":
        image_commands.image_load(what)
    else:
        hint = r"no image\. For the archive of this name: \./web$" if what == "web" else "no image$"
        with pytest.raises(WherryError, match=hint):
            image_commands.image_load(what)
    assert found == [loaded]


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(WherryError, match="name an archive or an image"):
        image_commands.image_load("")


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:latest", "docker.io/library/busybox:latest"),
        ("team/app:1", "docker.io/team/app:1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("docker.io/library/busybox:latest", "docker.io/library/busybox:latest"),
    ],
)
async def test_parts_of_a_name_may_be_left_out(monkeypatch: pytest.MonkeyPatch, short: str, full: str) -> None:
    commands: list[list[str]] = []

    async def run(argv: list[str], **_: Any) -> Result:
        commands.append(argv)
        return Result(0, f"REF TYPE DIGEST SIZE PLATFORMS LABELS\n{full} type sha256:aa 1.0 MiB linux/amd64 -\n", "")

    monkeypatch.setattr(images, "run", run)
    assert await images.remove(None, [short]) == [full]  # type: ignore[arg-type]
    assert commands[-1] == ["ctr", "images", "rm", "--sync", full]
    with pytest.raises(WherryError, match="there is no image other"):
        await images.remove(None, ["other"])  # type: ignore[arg-type]


def test_sizes_are_data_in_bytes() -> None:
    (image,) = filter(None, [images.parsed(LIST.splitlines()[1])])
    assert images.as_data(image)["size"] == 1 << 20
    assert [images.bytes_of(text) for text in ("776.0 B", "1.5 KiB", "-", "x MiB")] == [776, 1536, 0, 0]


def test_a_runtime_that_does_not_run_is_an_error_with_the_command_that_starts_it(tmp_path: Path) -> None:
    with pytest.raises(WherryError, match=r"^containerd does not run: `wherry up` starts it$"):
        REQUIRE_RUNNING(Settings(prefix=str(tmp_path)))
    other = Settings(runtime_endpoint=f"unix://{tmp_path}/other.sock")
    with pytest.raises(WherryError, match=r"other\.sock does not answer: No such file or directory$"):
        REQUIRE_RUNNING(other)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "other.sock"))
        listener.listen()
        REQUIRE_RUNNING(other)


async def test_a_name_is_removed_with_the_labels_of_images_that_were_loaded_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The image stays under another name, of another manifest."""
    commands: list[list[str]] = []
    label, other = f"wherry.local/loaded/{NAME}", "wherry.local/loaded/registry.test/other:1"
    labels = f"io.cri-containerd.image=managed,{other}=true,{label}=true"
    listed = f"{LIST}sha256:cc type sha256:bb 1.0 MiB linux/amd64 {labels}\nx:1 type sha256:bb 1.0 MiB linux/amd64 -\n"

    async def run(argv: list[str], **_: Any) -> Result:
        commands.append(argv)
        return Result(0, listed, "")

    monkeypatch.setattr(images, "run", run)
    await images.remove(None, ["app:1"])  # type: ignore[arg-type]
    assert commands[1:] == [
        ["ctr", "images", "label", "sha256:cc", f"{label}="],
        ["ctr", "images", "rm", "--sync", NAME],
    ]
