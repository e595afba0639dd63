"""The formats of an export. Each receives decisions page by page and returns bytes, never all at once."""
