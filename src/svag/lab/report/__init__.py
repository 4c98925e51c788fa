"""What people see: a table of numbers, a picture of it, and one page that begins with the answer."""
