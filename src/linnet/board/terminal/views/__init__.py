"""What each tab looks like: functions from the board's state and a size to lines of text."""
