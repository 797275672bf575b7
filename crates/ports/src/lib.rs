//! Frames in and out: the Port trait, AF_PACKET, pcap and memory ports, wrappers; clocks, pollers and all of the project's unsafe code.
