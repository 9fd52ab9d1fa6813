"""What pages share: safe text, chips, the value curve, the chunk card, empty states, access to the store."""
