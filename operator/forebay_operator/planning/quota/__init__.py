"""How a namespace's VRAM is shared out, and what that allows one service."""
