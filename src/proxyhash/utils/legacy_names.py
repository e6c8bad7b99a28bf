"""Names that release 0.1 wrote to disk, and the names that they have now."""

# --- Models: config.json, model files, feature caches ---

# --- Training: run folders, checkpoints, optimization settings ---

# --- Methods: settings, saved encoders ---

# --- Evaluation: metric keys ---

# --- Proxies: proxy sets ---

# --- Index: tables and columns of SQLite, JSON files ---

# --- Experiments: records, tuned settings ---

# --- Data: splits, transforms ---
