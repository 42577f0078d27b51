"""The command line `holobind`; `main` assembles the verbs of the other modules."""
