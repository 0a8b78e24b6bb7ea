"""How many pods: the user's number or the queue's, schedules, and who else sets replicas."""
