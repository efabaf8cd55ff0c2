"""What panels and charts are built on."""
