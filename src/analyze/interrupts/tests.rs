//! Literal windows, and the published figures.
