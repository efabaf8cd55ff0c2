"""Base classes and drawing helpers of panels and charts."""
