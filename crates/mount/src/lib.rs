//! The FUSE file system: the way in that serves everything.
