"""What the configuration of each client becomes: texts in, texts out, but for `files` and `proof`."""
