"""Work to do later, and how much of it in one pass of the reactor."""
