"""One HTML page that needs nothing else: how a program uses its files, and what a layout makes of it."""
