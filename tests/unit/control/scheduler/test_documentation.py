"""docs/scheduling.md: its file is read, and it names every plugin and argument."""

from pathlib import Path

from control.scheduler.cluster import Cluster
from control.scheduler.configuration import parse
from control.scheduler.profile import DEFAULTS, Surroundings, build

TEXT = (Path(__file__).resolve().parents[4] / "docs" / "scheduling.md").read_text()


def test_the_documented_file_makes_profiles() -> None:
    config = parse(TEXT.split("```yaml\n")[1].split("```")[0])
    given = Surroundings(Cluster())
    assert [build(one, given).name for one in config.profiles] == ["default-scheduler", "packer"]
    assert config.extenders[0].ignorable


def test_every_plugin_is_named() -> None:
    assert [name for name in DEFAULTS if name != "PrioritySort" and name not in TEXT] == []
