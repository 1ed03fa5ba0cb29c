"""What a worker shows: logs, health, metrics, progress, hooks and notifications."""
