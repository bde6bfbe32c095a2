"""Who is calling and what they may do: certificates, tokens, roles, limits, and the record of it all.

May import kernel, protocol and metadata. Every front door asks one object, the `Guard` of `guard.py`: start reading
there. What each call needs is one table, `operations.py`; how a decision is made is `rbac.py`, without I/O.
"""
