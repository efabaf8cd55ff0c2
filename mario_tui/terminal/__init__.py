"""The terminal: safe output, and adapting to slow links."""
