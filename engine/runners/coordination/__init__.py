"""What the first process of every runner does besides acting and learning."""
