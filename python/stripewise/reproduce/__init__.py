"""The papers' experiments again: simulated at their own scale, and measured on emulated pools where that is possible.

One file a paper (`harl`, `chen`, `song`) holds its experiments as data: the paper's figures, devices, workloads and the
layouts that are compared. All else is common: `experiment` (what an experiment is), `cluster`, `workload`, `placement`
(what it is made of), `throughput` and `measure` (running it), `plot` and `document` (showing it).
"""
