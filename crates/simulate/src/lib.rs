//! Discrete-event simulation of requests on servers.
