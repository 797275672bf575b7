//! One worker's run-to-completion pipeline, the worker thread, and the mirror of the kernel's routes and neighbours.
