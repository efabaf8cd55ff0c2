"""What games are for those who play them: lanes, episodes, frame stacks, guides, curricula, games for `play`."""
