"""Policy distillation: one student network learns to play what several teachers play."""
