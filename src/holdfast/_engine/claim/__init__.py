"""Claiming: how many tasks of which queue, and when to claim again."""
