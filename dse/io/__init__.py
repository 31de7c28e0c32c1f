"""Files, inputs and outputs, cache, TOML, interruption, and quantities as users write them."""
