"""Writing topics: rows become messages, each once, whatever Spark repeats."""
