"""Topics, producers, subscriptions: what the broker knows and does, whatever protocol asks for it.

Drives the pure state machines of `dispatch` over `log`, and keeps the facts in `metadata`. May import
those, `segments`, `protocol` and `kernel`. Start reading at `broker.py`, then `reliable_topic.py`.
"""
