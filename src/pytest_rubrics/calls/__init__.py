"""One model call: the wire request, the store of replies, the limits and the way through LiteLLM."""
