"""Speed and memory as ratios, each measured beside its yardstick in the same run."""
