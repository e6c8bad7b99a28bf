"""Exchange of codes with other programs: files of faiss, usearch, parquet and numpy."""
