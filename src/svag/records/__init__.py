"""What describes a run and what it left: frozen records that refuse nonsense, and the files that hold them."""
