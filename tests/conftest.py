"""For all tests, whoever started them."""

import signal

# A shell starts what it runs in the background with SIGINT ignored, and children inherit that: then no test that
# interrupts a command could work.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
