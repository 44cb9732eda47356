"""What is shown: figures now; a report and a page later. Compute, then draw."""
