"""The driver: connections, sessions, pipelines, parameters and notifications."""
