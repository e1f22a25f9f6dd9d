"""What all results share: a table, its page, plots and colours, and the files they go to."""
