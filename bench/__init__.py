"""Benchmarks: what a message costs at the front door and on disk, next to known yardsticks.

Run with `python -m bench` (`make bench`). Every scenario drives the contestants in turn, round after
round (A, B, C, A, B, C, …), so that a noisy neighbour hurts all of them alike; ratios are only ever
taken within one run. Start reading at `__main__.py`; one module per question:
`publish.py`, `delivery.py`, `durable.py`.
"""
