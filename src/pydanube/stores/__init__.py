"""Durable stores: named, immutable objects on a disk, a shared file system or in a cloud.

May import kernel only. Start reading at `store.py`: the promise every store keeps.
"""
