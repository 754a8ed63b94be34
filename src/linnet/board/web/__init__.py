"""The board in the browser: a small HTTP server over the reading side of `board/`."""
