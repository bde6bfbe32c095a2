"""A topic's past: runs of entries on the local disk, then Parquet segments in the durable store.

May import entries, stores, metadata, protocol and kernel. Start reading at `topic_history.py`.
"""
