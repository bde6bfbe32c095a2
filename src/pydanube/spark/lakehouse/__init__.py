"""Topics as tables of a lakehouse: Iceberg and Delta, kept up to date exactly once.

Start reading at `sync.py` (what one commit is), then `commits.py` (what the table remembers), then `iceberg_table.py` and
`delta_table.py` (why a commit is made once). `register.py` lends an Iceberg table the segments themselves.
"""
