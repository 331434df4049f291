"""Kept kernels as packages that need no AutoKernel: for the kernels package of Hugging Face, and as a plain Python package."""
