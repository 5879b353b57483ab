"""The command `unichain`: one module for each command, with its `main`."""
