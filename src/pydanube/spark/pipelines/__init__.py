"""Pipelines from YAML: source, decode, steps, sink, tests."""
