"""Measurement: the judge, the recipes, the fleet that carries them out, the search that says what to measure next."""
