"""`python -m reprogram.serve.health http://127.0.0.1:8000`: exit code 0 if the service takes requests, else 1."""

import sys
import urllib.error
import urllib.request


def is_ready(address: str) -> bool:
    """Whether a service at this address takes requests."""
    try:
        with urllib.request.urlopen(f"{address}/v2/health/ready", timeout=4) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


if __name__ == "__main__":
    sys.exit(0 if len(sys.argv) == 2 and is_ready(sys.argv[1]) else 1)
