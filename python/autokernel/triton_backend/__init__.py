"""Triton as a compiler: kernel.py files to cubins and what launching them takes, in confined children (docs/formats/triton.md)."""
