"""A context that root merges into the kubeconfig of an account without rights, as kubectl of that account reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kube.kubeconfig import Access, render
from wherry import home_files, user_kubeconfig
from wherry.layout import Layout
from wherry.settings import Settings

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

ACCOUNT = 60123
OTHER = render(Access("https://192.0.2.1", token="t"), cluster="work", user="jane", context="work")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the home of an account, in a folder that it may reach."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / ".kube").mkdir()
        (folder / ".kube/config").write_text(OTHER)
        for path in (folder, folder / ".kube", folder / ".kube/config"):
            os.chown(path, ACCOUNT, ACCOUNT)
        user = SimpleNamespace(pw_name="jane", pw_uid=ACCOUNT, pw_gid=ACCOUNT)
        admin = tmp_path / "admin.kubeconfig"
        admin.write_text(render(Access("https://192.0.2.2:6443", b"ca", b"cert", b"key"), user="kubernetes-admin"))
        monkeypatch.setattr(Layout, "admin_kubeconfig", admin)
        monkeypatch.setattr(Layout, "kubeconfig_holders", tmp_path / "holders")
        monkeypatch.setattr(home_files, "user_kubeconfig", lambda: (folder / ".kube/config", user))
        monkeypatch.setattr(home_files, "kubeconfig_of", lambda name: None)
        yield folder


def kubectl(home: Path, *arguments: str) -> str:
    """Run `kubectl config` as the account."""
    argv = ["kubectl", "config", *arguments]
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        argv, env=environment, user=ACCOUNT, group=ACCOUNT, extra_groups=[], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_account_uses_and_changes_the_context_until_reset_removes_it(home: Path) -> None:
    user_kubeconfig.offer(Settings())
    assert kubectl(home, "get-contexts", "-o", "name").split() == ["wherry", "work"]
    assert kubectl(home, "current-context") == "work"
    kubectl(home, "use-context", "wherry")
    kubectl(home, "set-context", "--current", "--namespace=mine")
    user_kubeconfig.offer(Settings())
    view = ("view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server} {.contexts[0].context.namespace}")
    assert kubectl(home, *view) == "https://192.0.2.2:6443 mine"
    for path in home.rglob("*"):
        found = path.stat()
        assert (found.st_uid, found.st_gid) == (ACCOUNT, ACCOUNT), path
        assert path.is_dir() or found.st_mode & 0o777 == 0o600, path
    assert len(list((home / ".kube").iterdir())) == 2  # the file and one copy: the second call changed nothing
    user_kubeconfig.remove(Settings())
    assert kubectl(home, "get-contexts", "-o", "name") == "work"
    assert kubectl(home, "view", "--raw", "-o", "jsonpath={.users[*].user.token}") == "t"


def test_a_file_of_roots_that_the_account_linked_is_not_given_away(home: Path) -> None:
    """The kernel allows hard links to files of others with fs.protected_hardlinks=0."""
    config = home / ".kube/config"
    secret = home / "secret"
    secret.write_text(OTHER)
    secret.chmod(0o600)
    config.unlink()
    os.link(secret, config)
    user_kubeconfig.offer(Settings())
    assert secret.stat().st_ino == config.stat().st_ino and secret.stat().st_uid == 0
    assert [path.name for path in (home / ".kube").iterdir()] == ["config"]
