"""Rows of timesteps: trials and exact chains in one form."""
