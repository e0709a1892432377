"""What Prometheus is told, at ``/metrics`` of the admin service."""
