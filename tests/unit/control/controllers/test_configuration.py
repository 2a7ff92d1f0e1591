"""The controller manager's configuration file, read from the documentation's own example."""

from pathlib import Path

import pytest

from control.controllers.configuration import ConfigurationError, Settings, load, parse

DOCS = Path(__file__).resolve().parents[4] / "docs" / "autoscaling.md"


def test_the_documented_file_holds_the_defaults() -> None:
    text = DOCS.read_text().split("```yaml\n")[1].split("```")[0]
    assert parse(text) == Settings() == load(None)


def test_times_are_go_durations_and_others_sections_are_left_alone() -> None:
    text = (
        "kind: KubeControllerManagerConfiguration\ndeploymentController: {}\n"
        "hPAController: {horizontalPodAutoscalerSyncPeriod: 1m500ms}"
    )
    assert parse(text).autoscaling.sync_period == 60.5


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
        parse(text)


def test_node_lifecycle_settings_are_read_from_the_file() -> None:
    text = (
        "kind: KubeControllerManagerConfiguration\n"
        "nodeLifecycleController: {nodeMonitorGracePeriod: 20s, nodeEvictionRate: 0.5, largeClusterSizeThreshold: 3}"
    )
    found = parse(text).lifecycle
    assert (
        found.monitor_grace_period,
        found.eviction_rate,
        found.large_cluster_size_threshold,
        found.startup_grace_period,
    ) == (20, 0.5, 3, 60)
