"""scripts/install: installed packages, a second run, a changed lock, and a file that does not match the lock."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kube.build import GIT_VERSION
from tests.support.cluster import eventually

ROOT = Path(__file__).resolve().parents[2]
TREE = ("agent", "control", "cri", "kube", "netproxy", "systemd", "wherry", "scripts")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree whose lock may be changed."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in TREE:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("requirements.lock", "requirements-docker.lock", "requirements-kubectl.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def venv(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("installed") / "wherry"
    done = install(checkout, made)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def install(
    checkout: Path, venv: Path | str, folder: Path | None = None, *options: str
) -> subprocess.CompletedProcess[str]:
    command = [str(checkout / "scripts/install"), str(venv), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=folder)


def steps(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the steps that were done, without what they took."""
    return re.findall(r"^✓ (.+) \([^()]*\d\.\d s\)$", done.stdout, re.M)


def filled(checkout: Path, venv: Path) -> str:
    """Return the step that installs what the lock names."""
    pins = re.findall(r"^[\w.-]+==", (checkout / "requirements.lock").read_text(), re.M)
    return f"install {len(pins)} Python packages into {venv}"


def packages(venv: Path) -> set[str]:
    listing = "import importlib.metadata as m; print(*(d.name for d in m.distributions()), sep=chr(10))"
    done = subprocess.run(
        [venv / "bin/python", "-c", listing], capture_output=True, text=True, check=True, env=environment()
    )
    return {re.sub("[-_.]+", "-", name).lower() for name in done.stdout.split()}


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_there_is_what_the_lock_names_and_no_installer(checkout: Path, venv: Path) -> None:
    pins = re.findall(r"^([\w.-]+)==", (checkout / "requirements.lock").read_text(), re.M)
    assert packages(venv) == {re.sub("[-_.]+", "-", name).lower() for name in pins}
    assert not list((venv / "bin").glob("pip*"))
    roles = "import wherry.main, control.main, agent.main, netproxy.main; print(wherry.__file__)"
    done = subprocess.run(
        [venv / "bin/python", "-c", roles], capture_output=True, text=True, check=False, env=environment(), cwd="/"
    )
    assert done.stdout.strip() == str(venv / "src/wherry/__init__.py"), done.stderr
    subprocess.run([venv / "bin/wherry", "--help"], capture_output=True, check=True, env=environment(), cwd="/")


@pytest.mark.parametrize("script", ["install", "up", "join"])
def test_help_is_printed_and_nothing_is_done(script: str) -> None:
    for option in ("-h", "--help"):
        command = ["/bin/bash", str(ROOT / "scripts" / script), option]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        first = (ROOT / "scripts" / script).read_text().splitlines()[1].removeprefix("# ")
        assert done.stdout.splitlines()[0] == first and "set -euo" not in done.stdout and done.stderr == ""


def test_an_option_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    done = install(ROOT, "--prepaer", tmp_path)
    message = "scripts/install: there is no option --prepaer: scripts/install --help shows those there are\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_a_second_run_installs_nothing(checkout: Path, venv: Path) -> None:
    source = venv / "src/kube/build.py"
    before = source.stat().st_ctime_ns
    done = install(checkout, venv)
    assert (done.returncode, done.stdout) == (0, "")
    assert source.stat().st_ctime_ns == before, "`wherry up` takes a tree that is written again for another version"


def test_a_changed_source_is_installed(checkout: Path, venv: Path) -> None:
    changed, source = checkout / "wherry/errors.py", venv / "src/wherry/errors.py"
    before = (venv / "src/kube/build.py").stat().st_ctime_ns
    changed.write_text(changed.read_text() + "# changed\n")
    assert install(checkout, venv).returncode == 0
    assert source.read_text().endswith("# changed\n") and (venv / "src/kube/build.py").stat().st_ctime_ns > before


def test_the_client_of_the_docker_engine_is_added_on_request_and_kept(checkout: Path, venv: Path) -> None:
    before, found = packages(venv), ["install the client of the Docker engine"]
    assert "docker" not in before
    done = install(checkout, venv, None, "--docker")
    assert (done.returncode, steps(done)) == (0, found), done.stderr
    assert {"docker", "requests"} <= packages(venv) - before and not {"pip", "setuptools"} & packages(venv)
    assert install(checkout, venv).stdout == ""
    lock = checkout / "requirements-docker.lock"
    lock.write_text(lock.read_text() + "# changed\n")
    assert steps(install(checkout, venv)) == [*found, "compile the sources"], "an installed client follows the lock"


def test_modules_in_the_current_folder_are_not_imported(checkout: Path, venv: Path, tmp_path: Path) -> None:
    for name in ("ensurepip", "venv", "pip", "grpc", "compileall", "sysconfig"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\n")
    (venv / ".installed").unlink()  # so that everything is set up again
    done = install(checkout, os.path.relpath(venv, tmp_path), tmp_path)
    assert (done.returncode, steps(done)) == (0, [filled(checkout, venv)]), done.stderr
    assert not (tmp_path / "imported").exists()


def test_an_upgrade_is_prepared_beside_what_runs_and_replaces_it_with_a_rename(checkout: Path, venv: Path) -> None:
    added, prepared = checkout / "wherry/added.py", venv.with_name(f"{venv.name}.new")
    lock = checkout / "requirements.lock"
    before = lock.read_text()
    (venv / "kept").write_text("")
    added.write_text("VALUE = 1\n")
    try:
        done = install(checkout, venv, None, "--prepare")
        assert (done.returncode, steps(done)) == (0, ["compile the sources"]), done.stderr
        assert imported(prepared) == f"1 {prepared}/src/wherry/added.py" and "cannot import" in imported(venv)
        inode = (prepared / "src").stat().st_ino
        done = install(checkout, venv)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert (venv / "src").stat().st_ino == inode, "the prepared folder was renamed"
        assert imported(venv) == f"1 {venv}/src/wherry/added.py" and (venv / "kept").exists()
        eventually(lambda: [path.name for path in venv.parent.iterdir()] == [venv.name], "the former one is removed")

        # A checkout that changed after the preparation is installed as it is.
        lock.write_text(before + "# changed\n")
        assert filled(checkout, prepared) in steps(install(checkout, venv, None, "--prepare"))
        lock.write_text(before)
        added.write_text("VALUE = 2\n")
        assert steps(install(checkout, venv)) == ["compile the sources"] and not prepared.exists()
        assert imported(venv) == f"2 {venv}/src/wherry/added.py"
    finally:
        shutil.rmtree(prepared, ignore_errors=True)
        added.unlink(missing_ok=True)
        lock.write_text(before)


def imported(venv: Path) -> str:
    """Return value and file of the module that only one of two versions has, or the error of its import."""
    code = "from wherry import added; print(added.VALUE, added.__file__)"
    command = [str(venv / "bin/python"), "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), cwd="/")
    return (done.stdout + done.stderr).strip()


def test_a_changed_lock_brings_the_installer_back_and_takes_it_away_again(checkout: Path, venv: Path) -> None:
    lock = checkout / "requirements.lock"
    before = lock.read_text()
    lock.write_text(before + "# changed\n")
    shutil.rmtree(next((venv / "lib").glob("python3*/site-packages/shellingham")))
    shutil.rmtree(next((venv / "lib").glob("python3*/site-packages/shellingham-*")))
    done = install(checkout, venv)
    lock.write_text(before)
    assert (done.returncode, steps(done)) == (0, [filled(checkout, venv), "compile the sources"]), done.stderr
    assert "shellingham" in packages(venv) and not {"pip", "setuptools"} & packages(venv)


def test_a_file_with_another_hash_ends_the_installation_and_is_tried_again(checkout: Path, venv: Path) -> None:
    lock = checkout / "requirements.lock"
    before = lock.read_text()
    start = before.index("shellingham==")
    end = before.index("\nstarlette==")
    forged = re.sub("sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, before[start:end])
    lock.write_text(before[:start] + forged + before[end:])
    stamp = (venv / ".installed").read_text()
    shutil.rmtree(next((venv / "lib").glob("python3*/site-packages/shellingham-*")))
    done = install(checkout, venv)
    lock.write_text(before)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr and "could not be installed" in done.stderr
    assert "Collecting " not in done.stderr and "Requirement already" not in done.stderr
    assert done.stdout.splitlines()[-1].startswith("✗ install ")
    assert (venv / ".installed").read_text() == stamp


def test_a_machine_without_kubectl_gets_one_of_the_servers_version(checkout: Path, venv: Path, tmp_path: Path) -> None:
    """With a PATH that has no kubectl but for that of the folder, in a mount namespace of its own, that links go into."""
    programs, links = tmp_path / "programs", tmp_path / "links"
    programs.mkdir()
    links.mkdir()
    for folder in ("/usr/bin", "/usr/sbin"):
        for program in Path(folder).iterdir():
            if program.name != "kubectl" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    script = """
        mount --bind "$1" /usr/local/bin
        "$2/scripts/install" "$3"
        kubectl version --client
        touch "$3/kubectl/kept"
        "$2/scripts/install" "$3"
    """
    command = ["unshare", "--mount", "bash", "-euc", script, "bash", str(links), str(checkout), str(venv)]
    given = {**os.environ, "PATH": f"/usr/local/bin:{programs}"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=given)
    assert done.returncode == 0, done.stdout + done.stderr
    minor = ".".join(GIT_VERSION.removeprefix("v").split(".")[:2])
    assert f"Client Version: v{minor}." in done.stdout
    assert os.readlink(links / "kubectl") == str(venv / "kubectl/bin/kubectl")
    assert (venv / "kubectl/kept").exists()
    assert steps(done).count("install kubectl") == 1
