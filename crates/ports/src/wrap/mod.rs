//! Middleware around any port: see every frame, write it to a capture file, or do it harm on purpose.
