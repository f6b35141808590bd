"""Searches as tokens: vocabularies and the grammar of prompts and responses."""
