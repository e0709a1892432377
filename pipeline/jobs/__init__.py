"""The jobs of ``gateway-pipeline``: each reads, transforms and writes."""
