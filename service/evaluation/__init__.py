"""Evaluations: other policies and other budgets on a campaign's log, computed in a separate process."""
