//! The scenario format: topology, routers, traffic, timed steps, samples and expectations.
