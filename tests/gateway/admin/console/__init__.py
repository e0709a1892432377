"""The console: its rules without a browser, and its pages in Chromium."""
