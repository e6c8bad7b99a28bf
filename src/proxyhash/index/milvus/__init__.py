"""The same index on a Milvus server or cluster: what one machine cannot hold, behind the same interface."""
