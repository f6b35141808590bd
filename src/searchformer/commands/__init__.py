"""One module per subcommand, each with a function `run` whose docstring is its help."""
