"""Predictions: queues, what-if, previews of an edit, what a TBT target costs."""
