"""The console: pages of the admin service for operators with a browser."""
