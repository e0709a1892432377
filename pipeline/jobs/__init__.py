"""The jobs of the command gateway-pipeline: each reads, composes transforms, and writes."""
