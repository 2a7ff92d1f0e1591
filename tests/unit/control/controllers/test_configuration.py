"""The controller manager's configuration file, read from the documentation's own example."""

from pathlib import Path

import pytest

from control.controllers.autoscaling import AutoscalingSettings
from control.controllers.configuration import ConfigurationError, autoscaling, load

DOCS = Path(__file__).resolve().parents[4] / "docs" / "autoscaling.md"


def test_the_documented_file_holds_the_defaults() -> None:
    text = DOCS.read_text().split("```yaml\n")[1].split("```")[0]
    assert autoscaling(text) == AutoscalingSettings() == load(None)


def test_times_are_go_durations_and_others_sections_are_left_alone() -> None:
    text = (
        "kind: KubeControllerManagerConfiguration\nnodeLifecycleController: {}\n"
        "hPAController: {horizontalPodAutoscalerSyncPeriod: 1m500ms}"
    )
    assert autoscaling(text).sync_period == 60.5


@pytest.mark.parametrize(
    "text",
    [
        "kind: Other",
        "[",
        "kind: KubeControllerManagerConfiguration\nhPAController: 3",
        "kind: KubeControllerManagerConfiguration\nhPAController: {horizontalPodAutoscalerSyncPeriod: soon}",
    ],
)
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        autoscaling(text)
