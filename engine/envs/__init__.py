"""What games are for those who play them: lanes, episodes, frame stacks, curricula, games for `play`."""
