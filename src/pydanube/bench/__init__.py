"""Measures a broker through its clients: `danube bench publish|consume|latency`.

A run is a `Plan`, carried out in stages by worker processes and told as a `Report`. May import client,
protocol and kernel, never the broker: what is measured is what an application gets. Start reading at
`run.py`; the loads are `publish.py`, `fill.py`, `consume.py` and `latency.py`, each over `native` or `grpc`.
"""
