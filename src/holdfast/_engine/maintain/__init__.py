"""Maintenance: chores on history, and the scheduler."""
