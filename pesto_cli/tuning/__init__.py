"""Choose a plan by measured steps: run candidates by turns, correct the costs, search again.

FastT (Yi et al., Middleware '20, Section 4) profiles the training itself: it runs a plan, updates
its cost models by what was measured, plans again, and goes back to the former plan if the new one
is slower. Here, several candidates run by turns on the same devices.

No module of this package runs steps itself: it gets a function that does (`rounds.Measure`).
"""
