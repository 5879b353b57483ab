"""From steps to sums: trials are checked, encoded, and added up.

A *trial* is one run over timesteps 0 to t_max. A *round* is the trials that are added up together,
a *shard* one or more rounds for one worker. A *batch* is a share of all trials with sums of its
own, which standard errors compare; a batch of observations is n of them in one array.
"""
