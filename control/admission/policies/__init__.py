"""Admission policies: rules written in CEL that the server asks itself (ValidatingAdmissionPolicy and its kin)."""
