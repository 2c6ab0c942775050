"""`python -m jax_fp8.bench`: times products, quantisers and whole layers beside their peers, and keeps the results."""
