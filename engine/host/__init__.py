"""The process that owns one run and serves its clients; and the client side."""
