"""The page and the report in a real browser: Debian's Chromium, driven by Playwright."""
