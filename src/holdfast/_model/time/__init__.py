"""Durations, recurrences, schedules and their plan times."""
