//! The steps of a request, as the field names them (Flash 1999, section 2): read request,
//! find file, send header, read file, send data.

pub(crate) mod find_file;
pub(crate) mod read_file;
mod read_request;
mod send_data;
mod send_header;
