"""Files of bars of any source into sound arrays; `files` is where it begins."""
