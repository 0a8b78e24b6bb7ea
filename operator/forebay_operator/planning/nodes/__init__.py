"""Which nodes a service's pods may run on, and what GPUs those offer."""
