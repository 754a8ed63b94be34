"""The board in the terminal: runs as they train, in any terminal, over ssh, with no set-up."""
