"""`wherry image load NAME` reads an image from a Docker engine, through the docker package and a socket."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from wherry import image_loading
from wherry.errors import WherryError
from wherry.progress import Progress

ARCHIVE = b"the archive " * 100_000
SETTINGS: Any = None


class Engine(BaseHTTPRequestHandler):
    """The paths of a Docker engine that has the image web:latest."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = "/" + self.path.split("/", 2)[2] if self.path.startswith("/v1.") else self.path
        if path == "/version":
            self._reply(200, {"ApiVersion": "1.51", "MinAPIVersion": "1.24"})
        elif path in ("/images/web/json", "/images/web:latest/json"):
            self._reply(200, {"Id": "sha256:" + "a" * 64, "RepoTags": ["other:1", "web:latest"]})
        elif path in ("/images/web/get", "/images/web:latest/get"):
            self._send(200, "application/x-tar", ARCHIVE)
        elif path == "/images/broken/json":
            self._reply(200, {"Id": "sha256:" + "b" * 64, "RepoTags": []})
        elif path == "/images/broken/get":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only a part")
            self.close_connection = True
        else:
            self._reply(404, {"message": f"No such image: {path}"})

    def _reply(self, status: int, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """Run an engine, and record the archives that would be imported into containerd."""
    found = list[bytes]()

    async def load_archive(settings: Any, archive: Path, progress: Progress) -> list[str]:
        found.append(await asyncio.to_thread(archive.read_bytes))
        return ["docker.io/library/web:latest"]

    monkeypatch.setattr(image_loading, "load_archive", load_archive)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'docker.sock'}")
    with ThreadingUnixStreamServer(str(tmp_path / "docker.sock"), Engine) as engine:
        engine.daemon_threads = True
        thread = threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield found
        engine.shutdown()
        thread.join()


@pytest.mark.parametrize("name", ["web", "web:latest"])
async def test_an_image_is_copied_under_its_name(loaded: list[bytes], name: str) -> None:
    assert await image_loading.load_from_docker(SETTINGS, name, Progress("load")) == ["docker.io/library/web:latest"]
    assert loaded == [ARCHIVE]


async def test_an_image_that_the_engine_has_not_is_named(loaded: list[bytes]) -> None:
    with pytest.raises(WherryError, match="has no image nothing: `docker pull nothing` first"):
        await image_loading.load_from_docker(SETTINGS, "nothing", Progress("load"))
    assert loaded == []


async def test_an_archive_that_ends_too_early_is_not_imported(loaded: list[bytes]) -> None:
    with pytest.raises(WherryError, match="the local Docker engine does not answer"):
        await image_loading.load_from_docker(SETTINGS, "broken", Progress("load"))
    assert loaded == []


async def test_an_engine_that_does_not_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'no.sock'}")
    where = f"unix://{tmp_path / 'no.sock'}"
    with pytest.raises(WherryError) as refused:
        await image_loading.load_from_docker(SETTINGS, "web", Progress("load"))
    why = f"{where}: no such file or directory"
    assert str(refused.value) == f"the local Docker engine does not answer ({why}): start it, or name an archive"


@pytest.mark.parametrize("missing", ["docker", "requests"])
async def test_without_the_package_the_error_names_both_ways(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(WherryError) as error:
        await image_loading.load_from_docker(SETTINGS, "web; rm", Progress("load"))
    assert "`docker save -o image.tar 'web; rm'`" in str(error.value)
    assert "pip install 'wherry[docker]'" in str(error.value)
