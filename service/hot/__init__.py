"""The hot endpoints: the short way from the bytes of a request to the bytes of its answer."""
