//! Names for addresses (blazesym).
