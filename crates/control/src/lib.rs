//! The router's Unix-socket control protocol: server, client, watch and scripts.
