"""Learning an embedding around fixed proxies. The losses need torch (the extra `train`); the batches do not."""
