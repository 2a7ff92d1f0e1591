"""A copy-on-write view of this machine's files, with processes of its own. What is installed there does not reach the machine.

An overlay over / is the root of a mount and PID namespace; what is written goes to memory. All of it ends with the first
process, so nothing has to be cleaned up when a test fails. The network is that of the caller, /run, /tmp and /root are empty.
"""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_ENTER = """
set -eu
mount --make-rprivate /
scratch=$1
mount -t tmpfs -o size=3g,mode=755 tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
cd "$scratch/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
for folder in run tmp root; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
chmod 1777 tmp
for folder in "${@:2}"; do
    mkdir -p ".$folder"
    mount --bind "$folder" ".$folder"
    mount -o remount,bind,ro ".$folder"
done
mkdir -p run/lock run/written .before
mount --bind "$scratch/upper" run/written
pivot_root . .before
umount -l /.before
rmdir /.before
rm -rf /opt/wherry /etc/wherry /etc/cni/net.d /var/lib/cni /var/lib/kubelet /var/lib/wherry
rm -rf /var/log/containers /var/log/pods /var/log/wherry
echo ready
sleep infinity &
wait
"""


class CopiedMachine:
    """The view, entered by the process ID of its first process."""

    def __init__(self, first: int) -> None:
        self.first = first

    @property
    def enter(self) -> list[str]:
        return ["nsenter", f"--target={self.first}", "--mount", "--pid", "--net", "--root", "--wd"]

    def run(
        self, *argv: str, check: bool = True, input: bytes | None = None, timeout: float = 120, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; its failure shows its output."""
        done = subprocess.run(
            [*self.enter, *argv],
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            timeout=timeout,
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "LC_ALL": "C.UTF-8",
                "DEBIAN_FRONTEND": "noninteractive",
            }
            | env,
            check=False,
        )
        shown = subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if check and shown.returncode != 0:
            raise AssertionError(f"{shlex.join(argv)}: status {shown.returncode}\n{shown.stdout}{shown.stderr}")
        return shown

    def shell(self, script: str, *arguments: str, check: bool = True) -> str:
        """Run a script and return its output."""
        return self.run("bash", "-euc", script, "bash", *arguments, check=check).stdout

    def write(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        data = content.encode() if isinstance(content, str) else content
        self.run("install", "-D", "-m", f"{mode:o}", "/dev/stdin", path, input=data)

    def copy(self, file: Path) -> str:
        """Copy a file of the real machine into /root, and return its path there."""
        target = f"/root/{file.name}"
        with file.open("rb") as source:
            subprocess.run([*self.enter, "cp", "/dev/stdin", target], stdin=source, check=True, timeout=120)
        return target

    def exists(self, path: str) -> bool:
        return self.run("test", "-e", path, check=False).returncode == 0

    def files(self, folder: str) -> set[str]:
        """Return the paths of all that is below a folder."""
        return set(self.run("find", folder, "-mindepth", "1").stdout.splitlines())

    def written(self) -> set[str]:
        """Return the paths that were written or removed here, without folders that the real machine has, too."""
        found = self.run("find", "/run/written", "-mindepth", "1", "-printf", "%y /%P\n").stdout.splitlines()
        kinds = [line.split(" ", 1) for line in found]
        return {path for kind, path in kinds if kind != "d" or not Path(path).is_dir()}


@contextlib.contextmanager
def copied_machine(scratch: Path, enter: Sequence[str] = (), *, shown: Sequence[Path] = ()) -> Iterator[CopiedMachine]:
    """Create a view, with an empty folder for its mounts.

    `enter` are words that enter a network namespace. Folders of `shown` are there, read-only, also below /tmp.
    """
    words = [*enter, "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "bash", "-c", _ENTER, "bash"]
    process = subprocess.Popen(
        [*words, str(scratch), *map(str, shown)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() != "ready\n":
            process.kill()
            raise AssertionError(f"no copy of this machine: {process.stderr.read()}")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield CopiedMachine(int(children[0]))
    finally:
        process.kill()  # its child is killed with it, and with that all processes of the namespace
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
