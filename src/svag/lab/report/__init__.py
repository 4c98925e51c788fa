"""Reports: tables of numbers, charts of them, and a page that begins with the answer."""
