"""What every implementation of a seam must do: suites that each implementation inherits."""
