"""What a user asks: how to size attention, and what attention that exists has and wastes."""
