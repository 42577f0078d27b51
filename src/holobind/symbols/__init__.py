"""Symbols with names: vocabularies, statements as text, structures, and how much noise to expect."""
