//! The lab, end to end: its commands against Flash, against the servers that Debian has, and against
//! servers that do all they can to spoil a measurement.

mod bad_servers;
mod cache;
mod commands;
mod doctor;
mod dynamic;
mod experiment;
mod gated;
mod harness;
mod interfere;
mod link;
mod peers;
mod requests;
mod trace;
mod wires;
