"""What clients may send, one file an endpoint; `fields` and `generation` hold what they share."""
