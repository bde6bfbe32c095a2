"""Topics in Spark next to what Spark does by itself: reading, streaming into a table, writing.

Run with `python -m bench.spark` (`make bench-spark`). Every question takes its contestants in turn, round after round,
in one session, against one broker on the same disk; ratios are taken within one run. Start reading at `__main__.py`;
one module per question: `reading.py`, `ingest.py`, `writing.py`. `workbench.py` has what they share, `aims.py` judges.
"""
