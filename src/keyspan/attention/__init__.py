"""The instrument: one definition (`reference`), several speeds."""
