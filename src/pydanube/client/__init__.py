"""The Python client, on the native protocol."""
