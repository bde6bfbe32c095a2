"""The same work on the peers and on our broker, side by side in one run on one machine.

Run with `python -m bench.compare`. Every workload takes the contestants in turn, round after round, each
started afresh on loopback with an empty folder on the same disk, alone on the machine while it is measured.
Start reading at `workloads.py` (what is asked) and `contestants/contestant.py` (of whom); `runner.py` brings
the two together, `outputs.py` reads what the peers' own tools print, `aims.py` judges, `report.py` shows.
"""
