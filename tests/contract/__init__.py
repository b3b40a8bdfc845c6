"""One suite for two brokers: the simulated one has to behave as the real one does."""
