"""`python -m searchformer` is the command line; `torchrun -m searchformer` needs it."""

from searchformer.cli import main

if __name__ == "__main__":
    main()
