"""What the operator tells of itself: metrics over HTTP, and whether it should be started anew."""
