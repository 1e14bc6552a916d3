"""What single operations of a step show by themselves."""
