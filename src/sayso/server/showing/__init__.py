"""What a person is shown of requests and runs, and what of it is for others."""
