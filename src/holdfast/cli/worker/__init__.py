"""Worker processes and the process that supervises them."""
