"""The parts of AutoKernel that PyTorch leaves no choice but to write in Python."""

__version__ = "0.1.0"
