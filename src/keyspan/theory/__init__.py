"""What mathematics says about capacity: pure functions of sizes, no torch, no files, nothing fitted to a loss."""
