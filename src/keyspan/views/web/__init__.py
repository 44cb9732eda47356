"""The local page: `keyspan ui`. Needs the extra [ui]; nothing outside this room imports it."""
