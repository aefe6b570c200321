"""`python -m stripewise`: the same as the `stripewise` command."""

from stripewise.cli import main

main()
