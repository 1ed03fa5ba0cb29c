"""Running attempts: slots, code, threads, processes, transactions."""
