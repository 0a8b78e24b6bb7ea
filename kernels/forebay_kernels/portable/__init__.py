"""The operations by torch alone: any device, no compiler. What has no faster form runs these."""
