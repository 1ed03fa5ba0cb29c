"""Work for the processor: a step in a process of its own, which a timeout really ends.

Python code in a thread can be asked to stop but not be stopped, and it shares one interpreter with everything else.
With `executor="process"` it has an interpreter to itself, does not hold up the worker's other tasks, and is killed when
its time is over or its task is cancelled.

    holdfast dev examples/process_executor.py
    holdfast enqueue count_primes below:=100000 --wait             # 9592
    holdfast enqueue count_primes below:=1000000000 --wait         # killed after 5 seconds, and parked
"""

from holdfast import App

app = App()


@app.task(executor="process", timeout="5s")  # must be at the top of a module: the child process imports it
def count_primes(below: int) -> int:
    """Args and result travel as JSON; what the process needs besides, it opens itself."""
    return sum(1 for number in range(2, below) if all(number % divisor for divisor in range(2, int(number**0.5) + 1)))
