"""What has to be done, as data, without time: operators, messages, bytes and parameters."""
