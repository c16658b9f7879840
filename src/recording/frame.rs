//! Lines of a view as stored in a recording: each line is one zstd frame. A recording can be read up to its last
//! complete frame, however it ended.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

/// zstd's own default. Measured on lines of latency and of locks: level 9 makes them 6 % smaller and takes 3 to 4.5
/// times as long; level 1 makes them 2 % larger and takes 0.8 times as long.
const LEVEL: i32 = 3;

/// Compresses lines into frames.
pub struct Packer {
    compressor: Compressor<'static>,
}

impl Packer {
    /// # Errors
    /// If there is not enough memory.
    pub fn new() -> io::Result<Self> {
        let mut compressor = Compressor::new(LEVEL)?;
        // With the checksum, a flipped bit is an error of the frame, never a wrong number.
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Self { compressor })
    }

    pub fn frame(&mut self, line: &[u8]) -> io::Result<Vec<u8>> {
        self.compressor.compress(line)
    }
}

/// A file to which frames are appended.
pub struct Frames {
    file: File,
    /// Size in bytes of the complete frames.
    length: u64,
}

impl Frames {
    /// Creates the file, accessible by its owner only.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self { file, length: 0 })
    }

    /// Appends a frame. On error the file has its previous length.
    pub fn add(&mut self, frame: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(frame, self.length).and_then(|()| self.file.flush());
        match written {
            Ok(()) => {
                self.length += frame.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Truncating needs no space. If even that fails, the reader reports a truncated frame.
                let _cut = self.file.set_len(self.length);
                Err(error)
            }
        }
    }
}
