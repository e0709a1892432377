"""Where rows come from: the journal as it is written, and as ingested."""
