//! The schema of router.toml: parsing with file and line, units in text, ranges, defaults, and its generated reference.
