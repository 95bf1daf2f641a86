//! Estimates stay in [0, 1] whatever the condition, and are right where the statistics decide.

