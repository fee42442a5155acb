"""What the configurations of clients become: texts in, texts out, but for `files` and `proof`."""
