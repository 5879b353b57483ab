"""What the command `unichain` and the scripts do: a module for each command, `main` in each."""
