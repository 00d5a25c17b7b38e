"""Rates, latencies and costs of asyncq, of other queues, and of the bare statements, measured side by side in one run.

How a figure comes about::

    __main__  options          ->  driver    rounds in which the systems take turns, after a warm-up
    driver    asks a workload  ->  workloads/*   what is done, and what is a round's figure
    stage     a fresh database, and a system's processes: one that produces, and workers
    systems/* one module for each system, run by the Python of that system's own environment
    report    medians, ranges and ratios of a results file; chart draws one of them

What is measured is measured from outside of the systems and in the same way for each: time by the machine's monotonic
clock, processor time of the client's and of the server's processes by the kernel's account of them, and jobs by a
counter in shared memory that every handler raises. A round whose handlers did not run exactly once a job, or that left
jobs behind, is an error and no figure.
"""
