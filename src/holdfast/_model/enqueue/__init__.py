"""What is enqueued: calls, requests, ids and references."""
