"""The store on PostgreSQL: the same modules and the same SQL, through another door."""
