"""Problem generators whose truth is known: nano arithmetic and the number games."""
