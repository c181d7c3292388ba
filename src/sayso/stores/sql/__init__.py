"""What SQLite and PostgreSQL share: statements, rows, lists, pruning, sealing, migrations."""
