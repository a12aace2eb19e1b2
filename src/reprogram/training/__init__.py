"""`fit`: one loop for every program and mapping."""
