"""docs/scheduling.md: its file is read, and it names every plugin and argument."""

from pathlib import Path

from control.scheduler.cluster import Cluster
from control.scheduler.configuration import parse
from control.scheduler.profile import DEFAULTS, PluginContext, build

from .devices import Devices, claim, device, read, slice_of

TEXT = (Path(__file__).resolve().parents[4] / "docs" / "scheduling.md").read_text()


def test_the_documented_file_makes_profiles() -> None:
    config = parse(TEXT.split("```yaml\n")[1].split("```")[0])
    given = PluginContext(Cluster())
    assert [build(one, given).name for one in config.profiles] == ["default-scheduler", "packer"]
    assert config.extenders[0].ignorable


def test_every_plugin_is_named() -> None:
    assert [name for name in DEFAULTS if name != "PrioritySort" and name not in TEXT] == []


def test_the_documented_claim_gets_its_documented_devices() -> None:
    manifest = TEXT.split("```yaml\n")[2].split("```")[0].rpartition("---")[0]
    device_class, template = read(manifest)
    incoming = claim()
    incoming.spec = template.spec.spec
    large = device("large", capacity={"memory": "80Gi"})
    small = [device(name, capacity={"memory": "16Gi"}) for name in ("a", "b")]
    assert Devices(slice_of(*small, large), device_class).names(incoming) == ["large"]
    assert Devices(slice_of(*small), device_class).names(incoming) == ["a", "b"]
