"""Who may come in: origins and hosts, names and sessions, how much, and what was refused."""
