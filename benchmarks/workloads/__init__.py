"""The workloads, in the order in which they are measured."""

from benchmarks.bench import Workload
from benchmarks.workloads import behind, bulk, drain, enqueue, idle, latency, steps

WORKLOADS: list[Workload] = [
    enqueue.workload(1),
    enqueue.workload(16),
    bulk.WORKLOAD,
    drain.workload(1),
    drain.workload(2),
    drain.RACE,
    steps.WORKLOAD,
    latency.IDLE,
    latency.RACE,
    latency.MIXED,
    *behind.WORKLOADS,
    idle.WORKLOAD,
]
