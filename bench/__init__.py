"""Measured side by side in one run; see __main__."""
