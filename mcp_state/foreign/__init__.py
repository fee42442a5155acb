"""Import of what other tools keep: each format is read into records, and these are taken in.

`recognising` says which format a path holds, one module per format reads it, and `taking` brings
the records into a project through the methods of the store.
"""
