//! What the targets have in common: how the result of a view is shown, and how its lines are mutated.

pub mod mutate;
pub mod views;
