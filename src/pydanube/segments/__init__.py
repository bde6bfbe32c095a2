"""Sealed history: immutable segment files, their catalogue in the metadata store, and the file system seam.

May import metadata and kernel. Start reading at `entry.py`, the unit that journal and segments share.
"""
