"""The committed protobuf modules are what scripts/stubs makes of the .proto files."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stubs")
    subprocess.run([ROOT / "scripts" / "stubs", out], check=True, stdin=subprocess.DEVNULL)
    return out


def test_the_committed_stubs_are_current(generated: Path) -> None:
    committed = {
        path.relative_to(ROOT): path.read_text()
        for top in ("agent", "cri", "control")
        for path in (ROOT / top).rglob("*_pb2.py*")
    }
    fresh = {path.relative_to(generated): path.read_text() for path in generated.rglob("*_pb2.py*")}
    committed = {path: text for path, text in committed.items() if path.suffix in (".py", ".pyi")}
    protos = [path for top in ("agent", "cri", "control") for path in (ROOT / top).rglob("*.proto")]
    assert len(fresh) == 2 * len(protos)
    assert committed == fresh


def test_the_stubs_load_with_the_oldest_supported_protobuf_too(generated: Path) -> None:
    tools = ROOT / ".cache" / "stubs-venv" / "bin" / "python"
    program = (
        "from cri.runtime.v1 import api_pb2 as a; from cri.containerd import events_pb2; "
        "m = a.RunPodSandboxRequest(config=a.PodSandboxConfig(hostname='h')); "
        "assert a.RunPodSandboxRequest.FromString(m.SerializeToString()).config.hostname == 'h'"
    )
    subprocess.run([tools, "-c", program], check=True, cwd=ROOT, stdin=subprocess.DEVNULL)


def test_what_drivers_speak_is_loaded_with_the_first_driver_only() -> None:
    program = (
        "import sys, agent.main; stubs = [name for name in sys.modules if name.startswith('agent.') and '_pb2' in name]; "
        "assert not stubs, stubs"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, stdin=subprocess.DEVNULL)
