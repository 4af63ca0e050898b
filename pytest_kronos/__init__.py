"""Kronos pytest plugin."""
