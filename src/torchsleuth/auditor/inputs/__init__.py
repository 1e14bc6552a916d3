"""What a model is given: sequences, masks, lengths and labels, what is padding in them, and where they were made."""
