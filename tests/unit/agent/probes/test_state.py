import pytest

from agent.interfaces import ProbeOutcome
from agent.probes.result import Verdict
from agent.probes.state import ContainerProbes, Kind
from kube.api import core_v1

GOOD, BAD, ERRORED, WARNING = Verdict.SUCCESS, Verdict.FAILURE, Verdict.ERRORED, Verdict.WARNING


def _container(**probes: core_v1.Probe) -> core_v1.Container:
    return core_v1.Container(name="main", **probes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "ready"),
    [
        ([], False),
        ([GOOD], True),
        ([BAD], False),
        ([GOOD, BAD, BAD], True),
        ([GOOD, BAD, BAD, BAD], False),
        ([GOOD, BAD, BAD, GOOD, BAD, BAD], True),
        ([GOOD, BAD, ERRORED, BAD, ERRORED], True),
        ([WARNING], True),
        ([GOOD, BAD, BAD, BAD, GOOD], True),
    ],
)
def test_readiness_follows_answers_in_a_row(answers: list[Verdict], ready: bool) -> None:
    probes = ContainerProbes.of(_container(readiness_probe=core_v1.Probe(failure_threshold=3)))
    for answer in answers:
        probes.record(Kind.READINESS, answer)
    assert probes.outcome().ready is ready
    assert probes.outcome().failed == ""


def test_the_success_threshold_counts_too() -> None:
    probes = ContainerProbes.of(_container(readiness_probe=core_v1.Probe(success_threshold=2, failure_threshold=1)))
    assert [probes.record(Kind.READINESS, answer) for answer in (GOOD, BAD, GOOD, GOOD)] == [False, False, False, True]
    assert probes.outcome().ready


def test_without_probes_a_container_is_started_and_ready() -> None:
    assert ContainerProbes.of(_container()).outcome() == ProbeOutcome()


def test_a_failed_liveness_probe_rests_until_the_next_container() -> None:
    probe = core_v1.Probe(failure_threshold=2, termination_grace_period_seconds=5)
    probes = ContainerProbes.of(_container(liveness_probe=probe))
    assert not probes.record(Kind.LIVENESS, BAD)
    assert probes.record(Kind.LIVENESS, BAD)
    assert probes.outcome() == ProbeOutcome(started=True, ready=True, failed="Liveness", grace=5)
    assert probes.wanted() == set()
    assert not probes.record(Kind.LIVENESS, GOOD)


def test_the_others_wait_for_the_startup_probe() -> None:
    probe = core_v1.Probe(failure_threshold=2)
    probes = ContainerProbes.of(_container(startup_probe=probe, liveness_probe=probe, readiness_probe=probe))
    assert probes.wanted() == {Kind.STARTUP}
    assert probes.outcome() == ProbeOutcome(started=False, ready=False)
    assert not probes.record(Kind.READINESS, GOOD)
    assert probes.record(Kind.STARTUP, GOOD)
    assert probes.wanted() == {Kind.LIVENESS, Kind.READINESS}
    assert probes.outcome() == ProbeOutcome(started=True, ready=False)


def test_a_container_with_only_a_startup_probe_is_ready_once_it_succeeded() -> None:
    probes = ContainerProbes.of(_container(startup_probe=core_v1.Probe()))
    assert not probes.outcome().ready
    probes.record(Kind.STARTUP, GOOD)
    assert probes.outcome() == ProbeOutcome()


def test_a_startup_probe_that_fails_often_enough_condemns_the_container() -> None:
    probes = ContainerProbes.of(_container(startup_probe=core_v1.Probe(failure_threshold=1)))
    assert probes.record(Kind.STARTUP, BAD)
    assert probes.outcome().failed == "Startup"
    assert probes.wanted() == set()


def test_while_a_pod_ends_only_readiness_matters() -> None:
    probe = core_v1.Probe(failure_threshold=1)
    probes = ContainerProbes.of(_container(liveness_probe=probe, readiness_probe=probe))
    probes.record(Kind.READINESS, GOOD)
    probes.ending = True
    assert probes.wanted() == {Kind.READINESS}
    assert not probes.record(Kind.LIVENESS, BAD)
    assert probes.record(Kind.READINESS, BAD)
    assert probes.outcome() == ProbeOutcome(started=True, ready=False)
