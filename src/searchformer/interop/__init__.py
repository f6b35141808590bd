"""Other people's checkpoints, data, tasks and tools: what comes in, and what goes out. Each adapter is one module."""
