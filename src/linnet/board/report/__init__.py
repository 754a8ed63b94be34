"""A report: the page of the board in the browser and the data of some runs, in one file."""
