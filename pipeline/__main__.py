"""``python -m pipeline JOB ...``, and the file that spark-submit is given:
``spark-submit ... pipeline/__main__.py JOB ...``.

Owns nothing: it is the command by another way.
"""

from __future__ import annotations

from pipeline.command import console

if __name__ == "__main__":
    console()
