//! Every on-disk layout: bytes in, structures out; no I/O.
