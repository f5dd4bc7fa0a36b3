"""Why an op runs where and when it does, and what a step's time is made of."""
