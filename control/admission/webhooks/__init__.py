"""Admission by others: mutating and validating webhooks, asked over HTTPS about what is going to be stored."""
