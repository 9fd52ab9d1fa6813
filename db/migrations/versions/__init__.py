"""One revision a file. A revision that was released is never edited."""
