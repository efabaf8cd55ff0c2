"""Training architectures. Each module wires the same actor and learner; `process` is what the host starts."""
