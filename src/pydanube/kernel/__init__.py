"""Words every room shares: names, ids, errors and their codes, policies, clock and dice.

Imports nothing of ours and does no I/O. Start reading at `errors.py`.
"""
