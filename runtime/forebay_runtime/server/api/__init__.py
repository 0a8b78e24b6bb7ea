"""The HTTP API: OpenAI's endpoints, vLLM's beside them, and the probes; one file an endpoint.

A request's way: `bodies` reads JSON into a checked body, `prompts` and `messages` turn it into
token ids, `sampling` and `structure` into what the engine is asked; generations give pieces, the
endpoint's wording spells them as JSON, and `answer` sends that whole or as a stream.
"""
