"""The doors into the model, and what is known of each kind of study behind them."""
