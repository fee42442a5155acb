"""How fast it is, beside the peers and beside what the machine can do at best: `make bench`."""
