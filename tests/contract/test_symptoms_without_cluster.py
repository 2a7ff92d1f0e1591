"""Messages of docs/troubleshooting.md that need no cluster: each is produced, and ends with the row's fix."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from netproxy.dns.forwarder import ResolvConf
from wherry import containerd, health
from wherry.errors import WherryError
from wherry.settings import Settings


class Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


async def test_a_stranger_on_the_port_of_a_daemon_that_does_not_run_is_no_health(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            settings = Settings(prefix=str(tmp_path), kubelet_healthz_port=server.server_port)
            found = await health.problem(settings, "agent")
        finally:
            server.shutdown()
            thread.join()
    assert found == f"it does not run, and another process answers on port {server.server_port}"
    ended = await health.problem(settings, "agent")
    assert ended is not None and "connection refused" in ended


async def test_a_file_that_is_no_archive_of_images_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "a.tar"
    archive.write_text("no archive")
    said = "ctr: archive/tar: invalid tar header"
    monkeypatch.setattr(containerd, "ctr", lambda settings: ["sh", "-c", f"echo '{said}' >&2; exit 1"])
    with pytest.raises(WherryError) as refused:
        await containerd.import_archive(Settings(prefix=str(tmp_path)), archive)
    what = "it is no archive of images (an OCI layout or `docker save`)"
    assert str(refused.value) == f"{archive} cannot be imported: {said}: {what}"


async def test_a_containerd_that_has_no_socket_is_named_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(WherryError, match=r"^containerd does not answer; see .*containerd"):
        await containerd.ensure_sandbox_image(Settings(prefix=str(tmp_path)), 0.2)


def test_resolvers_are_kept_and_said_once_while_their_file_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "resolv.conf"
    found = ResolvConf(path)
    assert (found.resolvers(), found.resolvers()) == ([], [])
    assert caplog.messages == [f"no new resolvers for names outside the cluster: {path}: No such file or directory"]
    path.write_text("nameserver 192.0.2.53\n")
    assert found.resolvers() == ["192.0.2.53"]


READ = """
import sys
from pathlib import Path
from control.controllers.addons import folder
file, = folder.scan(Path(sys.argv[1]), [0, 65534])
try:
    print(folder.read(file, [0, 65534]))
except folder.FileRefused as error:
    print(error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another account")
def test_an_addon_that_root_alone_may_read_is_refused_with_the_commands() -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name, "a.yaml")
        path.write_text("a: b\n")
        path.chmod(0o600)
        Path(name).chmod(0o755)
        assert read(name) == f"{path} cannot be read by the control plane: chgrp wherry {path}; chmod g+r {path}"
        path.chmod(0o644)
        assert read(name) == "b'a: b\\n'"


def read(folder: str) -> str:
    """Return what another account than root reads of the addon in a folder, or the refusal."""
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", READ, folder]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
