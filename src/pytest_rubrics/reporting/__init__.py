"""What people read: the table in the terminal and the files in the run folder."""
