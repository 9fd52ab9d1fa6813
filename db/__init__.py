"""The store: tables, sessions, named queries, migrations. Only this room writes SQL, and it imports no other room."""
