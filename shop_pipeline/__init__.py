"""Loads a shop's orders every day; see README.md."""
