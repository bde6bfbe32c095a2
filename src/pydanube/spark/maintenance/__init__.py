"""Jobs on the stored history of topics: compaction, erasure, audit, and tables replayed into topics.

Bulk work is done by Spark tasks, where segments lie; a broker alone changes what a topic consists of. What a job has
done stays done, and what is left to do is seen in the catalogue, so every job may be cut off and run again. Start
reading at `rewriting.py`.
"""
