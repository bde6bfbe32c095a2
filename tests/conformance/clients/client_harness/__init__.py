"""Starts brokers and client agents for the conformance scenarios; start reading at `agent`."""
