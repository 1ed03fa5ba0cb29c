"""What a step is given and what it may answer: context, outcomes, retries, progress."""
