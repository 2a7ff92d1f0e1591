"""Admission errors of the managers, with the reason and message of the pod's status (pkg/kubelet/lifecycle, cm/admission)."""

from __future__ import annotations


class AdmissionError(Exception):
    """A manager cannot give what the pod requests; such a pod fails with `reason`."""

    reason = "UnexpectedAdmissionError"

    @property
    def text(self) -> str:
        """The message for the pod's status."""
        return f"Allocate failed due to {self}, which is unexpected"


class TopologyAffinityError(AdmissionError):
    """No set of NUMA nodes that the policy accepts can give everything."""

    reason = "TopologyAffinityError"

    def __init__(self) -> None:
        super().__init__("Resources cannot be allocated with Topology locality")

    @property
    def text(self) -> str:
        return str(self)


class SMTAlignmentError(AdmissionError):
    """full-pcpus-only: the request is no whole number of free cores."""

    reason = "SMTAlignmentError"

    @property
    def text(self) -> str:
        return f"SMT Alignment Error: {self}"


class DynamicResourceError(Exception):
    """A pod's claims cannot be prepared or released now; it is retried later."""
