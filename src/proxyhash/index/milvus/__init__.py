"""Index on a Milvus server, or in a file by milvus-lite."""
