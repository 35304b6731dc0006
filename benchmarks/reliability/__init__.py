"""What is promised about hostile input, crashes and limits, measured."""
