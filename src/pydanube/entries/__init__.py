"""Entries and the local disk: the unit of append, runs of one topic's entries in a file, the file system seam.

May import kernel only. Start reading at `entry.py`, the unit that journal and runs share.
"""
