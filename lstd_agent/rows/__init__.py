"""Rows of timesteps: what trials and exact chains say, in one form."""
