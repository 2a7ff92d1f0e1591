"""A credential plugin for tests: a real program that notes what it is asked and answers with what a file says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_PROGRAM = """#!{python}
import json, os, sys
folder = os.environ["PLUGIN_FOLDER"]
asked = sys.stdin.read()
with open(folder + "/asked", "a") as out:
    out.write(json.dumps({{"arguments": sys.argv[1:], **json.loads(asked)}}) + "\\n")
answer = open(folder + "/answer").read()
if answer == "fail":
    sys.exit("no credentials today")
print(answer)
if os.path.exists(folder + "/status"):
    sys.exit(3)
"""
API_VERSION = "credentialprovider.kubelet.k8s.io/v1"


class CredentialPlugin:
    """The program `name` below `folder`, its configuration and what it was asked."""

    def __init__(self, folder: Path, name: str = "vault") -> None:
        self.folder, self.name = folder / f"{name}-state", name
        self.folder.mkdir(parents=True)
        self.bin_dir, self.config = folder / "bin", folder / f"{name}.yaml"
        self.bin_dir.mkdir(exist_ok=True)
        program = self.bin_dir / name
        program.write_text(_PROGRAM.format(python=sys.executable))
        program.chmod(0o755)

    def configure(self, *match_images: str, **more: Any) -> None:
        """Write the CredentialProviderConfig."""
        provider = {
            "name": self.name,
            "matchImages": match_images,
            "defaultCacheDuration": "1h",
            "apiVersion": API_VERSION,
            "args": ["get-credentials"],
            "env": [{"name": "PLUGIN_FOLDER", "value": str(self.folder)}],
            **more,
        }
        head = {"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1"}
        self.config.write_text(json.dumps({**head, "providers": [provider]}))

    def answer(self, address: str, username: str, password: str, **more: Any) -> None:
        """Say what the program answers from now on."""
        body = {
            "kind": "CredentialProviderResponse",
            "apiVersion": API_VERSION,
            "cacheKeyType": "Registry",
            "auth": {address: {"username": username, "password": password}},
            **more,
        }
        (self.folder / "answer").write_text(json.dumps(body))

    def fail(self) -> None:
        """Have the program end with an error from now on."""
        (self.folder / "answer").write_text("fail")

    def fail_afterwards(self) -> None:
        """Have the program end with an error after its answer from now on, without a message."""
        (self.folder / "status").touch()

    @property
    def received(self) -> list[dict[str, Any]]:
        """The requests so far."""
        path = self.folder / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
