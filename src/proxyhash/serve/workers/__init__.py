"""Worker processes of the service: decoders of images, and the process that searches."""
