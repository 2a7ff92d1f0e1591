"""Admission policies in CEL (ValidatingAdmissionPolicy, MutatingAdmissionPolicy)."""
