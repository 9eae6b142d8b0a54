//! The lab, end to end: its commands against Flash, against the servers that Debian has, and against
//! servers that do all they can to spoil a measurement.

mod bad_servers;
mod commands;
mod doctor;
mod experiment;
mod harness;
mod interfere;
mod peers;
mod trace;
