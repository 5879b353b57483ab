"""Statistics of windows of timesteps: the seam between samples and algorithms."""
