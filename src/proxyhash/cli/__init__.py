"""The `proxyhash` command: one file a subcommand."""
