//! Folded stacks to a flame graph (inferno).
