"""Policies on the Hugging Face Hub: taken from there by `hf://user/name`, and put there with a card."""
