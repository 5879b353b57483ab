"""From steps to sums: trials are checked, encoded, and added up.

A *trial* is one run from a reset over timesteps 0 to t_max. A *round* is the trials that are
added up together, such as one of each copy of a vector environment. A *shard* is a piece of work
for one worker, one or more rounds. A *batch* is a share of all trials with sums of its own:
standard errors compare the sums of batches. (A batch of observations is n of them in one array, as
a vector environment returns them.)
"""
