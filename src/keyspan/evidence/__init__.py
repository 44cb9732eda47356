"""What was seen: records, the store that keeps them, the fits made from them."""
