"""From steps to sums: encoding, policies, rollouts, the user's loop, batches of trials."""
