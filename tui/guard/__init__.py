"""Screen 4: the contention guard, and how far the predictors are off."""
