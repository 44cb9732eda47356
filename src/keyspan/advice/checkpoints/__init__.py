"""Checkpoints of trained models: which tensor is what, one small module per family; others by a mapping."""
