"""What measured steps say of predictions: `StepEstimates` is what the rest of the engine reads."""
