"""Which pods leave, why, and how their drains end."""
