"""One data-set format a file: read and write."""
