"""KernelBench: its problems as tasks of this program, solutions as self-contained files, and what they are worth."""
