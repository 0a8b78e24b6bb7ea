"""Why something does not go on, for whoever must mend it: a reason and a sentence each."""
