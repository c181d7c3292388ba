"""Ways to reach a person: each channel is an async callable that gets a request to somebody."""
