"""Training architectures: `single`, `parallel`, `ddp`, `apex` wire the same actor and learner; `links` starts one."""
