"""Fixtures and settings shared by all tests."""

from hypothesis import settings

settings.register_profile("holobind", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("holobind")
