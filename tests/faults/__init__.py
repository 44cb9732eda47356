"""What goes wrong on the way: kills, full disks, servers that go away, files that are none. `make faults` at full size."""
