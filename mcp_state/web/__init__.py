"""The page for people: what it is told, what it may do, and the site that serves it."""
