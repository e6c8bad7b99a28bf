"""Bit-sliced Hamming kernels: 256 codes are compared at once with bitwise instructions."""
