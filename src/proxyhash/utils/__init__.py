"""What every stage leans on: errors, seeds, threads, compiled kernels, files and progress."""
