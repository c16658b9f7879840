//! The real binary on the real kernel: how it is run, and devices of our own to run it on.
// Each test file is a crate that uses a part of this.
#![allow(dead_code)]

pub mod aio;
pub mod cgroup;
pub mod disk;
pub mod events;
pub mod ring;
pub mod tool;
pub mod view;
pub mod zram;
