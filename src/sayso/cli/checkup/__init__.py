"""What ``sayso doctor`` looks at: where the store is kept, and what stands in it."""
