"""What one device or one network does with an operator or a message: time and energy."""
