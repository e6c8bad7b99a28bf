"""Networks that turn images into features and features into codes; the one place, with training, that imports torch."""
