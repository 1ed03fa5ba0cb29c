"""Leases: the heartbeat, the reaper, the registration and the watchdog."""
