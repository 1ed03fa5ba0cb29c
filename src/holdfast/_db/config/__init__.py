"""The settings: what can be configured, and where each value comes from."""
