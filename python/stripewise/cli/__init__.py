"""The `stripewise` command: one file a command, all in one voice (`console`)."""

from stripewise.cli.app import main

__all__ = ["main"]
