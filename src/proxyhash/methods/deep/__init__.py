"""Methods that train a network: each is an objective of the shared trainer."""
