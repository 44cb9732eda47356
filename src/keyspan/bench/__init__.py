"""Side-by-side speeds: the fleet beside one model at a time, with the machine's ceiling measured in the same run."""
