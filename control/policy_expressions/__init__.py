"""Compiles the CEL expressions of admission policies and match conditions.

The registry compiles them to validate objects, admission (control/admission/policies) to evaluate them for requests.
"""
