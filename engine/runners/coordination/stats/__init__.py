"""What a runner counts and reports: totals, lanes, processes, and where their time goes."""
