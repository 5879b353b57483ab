"""Speed and memory as ratios, each measured against its yardstick in the same run."""
