"""What was claimed: for every paper the sweep behind each figure, and its claims with a test fixed before measuring."""
