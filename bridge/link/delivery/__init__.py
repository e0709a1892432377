"""How the batches of a link are delivered: by acknowledgement, or in XA transactions."""
