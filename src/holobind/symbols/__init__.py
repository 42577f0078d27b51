"""Named symbols: vocabularies, statements as text, data structures in one vector, and capacity."""
