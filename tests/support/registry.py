"""A real image registry (Debian's docker-registry) on a machine of the cluster, open or behind a password."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kube.pki import KeyPair
from tests.support import images
from tests.support.cluster import Cluster, eventually
from tests.support.containerd import Containerd

USER, PASSWORD = "wherry", "row-row-row"
_HTPASSWD = "wherry:$2b$05$LBlk158TGToy/UXkRXNF5uGSjjiU/4hZSlM0p.D3DFIX.NQJEeg/G\n"  # bcrypt, the only form it reads


class Registry:
    """The running registry; `host` is what image names begin with."""

    def __init__(self, cluster: Cluster, host: str, folder: Path, private: bool, tls: KeyPair | None = None) -> None:
        self.cluster, self.folder, self.private, self.tls = cluster, folder, private, tls
        self.host = host
        self.settings: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "info"},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
            "http": {"addr": self.host},
        }
        if private:
            (folder / "htpasswd").write_text(_HTPASSWD)
            self.settings["auth"] = {"htpasswd": {"realm": "wherry", "path": str(folder / "htpasswd")}}
        if tls is not None:
            tls.save(folder, "tls")
            self.settings["http"]["tls"] = {"certificate": str(folder / "tls.crt"), "key": str(folder / "tls.key")}

    def push(self, image: images.Image) -> None:
        """Push an image under its own name, through a containerd namespace that pods do not see."""
        archive = images.archive(self.folder / "push.tar", [image])
        credentials = ("--user", f"{USER}:{PASSWORD}") if self.private else ()
        self.cluster.ctr("--namespace", "push", "images", "import", "--no-unpack", str(archive))
        self.cluster.ctr("--namespace", "push", "images", "push", self.connection, *credentials, image.name)

    @property
    def connection(self) -> str:
        """The option of ctr that reaches it."""
        return "--plain-http" if self.tls is None else "--skip-verify"

    @property
    def requests(self) -> str:
        """The log of requests so far."""
        return (self.folder / "log").read_text(errors="replace")

    def docker_config(self, password: str = PASSWORD) -> str:
        """Return the content of a secret of type kubernetes.io/dockerconfigjson."""
        auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
        return json.dumps({"auths": {self.host: {"username": USER, "password": password, "auth": auth}}})


def machine(containerd: Containerd) -> Any:
    """Show a containerd's namespace as the machine on which a registry runs."""
    enter = ["nsenter", f"--net={containerd.netns}"]

    def run(*argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*enter, *argv], check=check, capture_output=True, text=True)

    def ctr(*arguments: str) -> str:
        command = [*enter, "ctr", "--address", str(containerd.socket), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return SimpleNamespace(host=SimpleNamespace(enter=enter, run=run), prefix=containerd.folder, ctr=ctr)


@contextlib.contextmanager
def registry(
    cluster: Cluster, port: int, private: bool = False, address: str = "127.0.0.1", tls: KeyPair | None = None
) -> Iterator[Registry]:
    """Run a registry that listens on an address of the machine, and take it away again."""
    with tempfile.TemporaryDirectory(dir=cluster.prefix) as folder:
        made = Registry(cluster, f"{address}:{port}", Path(folder), private, tls)
        settings = Path(folder) / "config.json"  # JSON is YAML
        settings.write_text(json.dumps(made.settings))
        with (Path(folder) / "log").open("w") as log:
            process = subprocess.Popen(
                [*cluster.host.enter, "/usr/bin/docker-registry", "serve", str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                eventually(lambda: _answers(made), f"the registry at {made.host}")
                yield made
            finally:
                process.terminate()
                process.wait()


def _answers(made: Registry) -> bool:
    url = f"{'http' if made.tls is None else 'https'}://{made.host}/v2/"
    done = made.cluster.host.run("curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", url, check=False)
    return done.stdout == ("401" if made.private else "200")
