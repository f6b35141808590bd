"""Recipes: whole experiments as TOML files. `searchformer run --list` explains those that are shipped."""
