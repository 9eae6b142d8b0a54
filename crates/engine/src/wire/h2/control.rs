//! Frames that change how answers are sent: settings, windows and priorities. Called by [`receive`](super::receive).

use flash_http::h2::frame::push_settings_ack;
use flash_http::h2::settings::{Setting, each_setting};
use flash_http::h2::{ErrorCode, Priority, Violation};

use super::H2;
use super::receive::IDLE;
use crate::limits::{H2_EARLY_PRIORITIES_MAX, H2_SETTINGS_PARAMETERS_MAX};

const MANY_SETTINGS: Violation =
    Violation::connection(ErrorCode::ENHANCE_YOUR_CALM, "There are too many settings");

impl H2 {
    /// Follows the settings of the client.
    pub(super) fn take_settings(&mut self, payload: &[u8]) -> Result<(), Violation> {
        self.frame_budget.frame()?;
        if payload.len() > H2_SETTINGS_PARAMETERS_MAX * 6 {
            return Err(MANY_SETTINGS);
        }
        let mut first_window = self.first_window;
        let encoder = &mut self.encoder;
        each_setting(payload, |setting| {
            match setting {
                Setting::HeaderTable(bytes) => encoder.resize(bytes as usize),
                Setting::InitialWindow(bytes) => first_window = bytes,
                Setting::Other => {}
            }
            Ok(())
        })?;
        let difference = i64::from(first_window) - i64::from(self.first_window);
        self.first_window = first_window;
        for stream in &mut self.streams {
            stream.window.grow(difference)?;
            stream.is_blocked = false;
        }
        push_settings_ack(&mut self.out);
        Ok(())
    }

    /// Grows a window.
    pub(super) fn take_window(&mut self, id: u32, increment: u32) -> Result<(), Violation> {
        if id == 0 {
            self.window.grow(i64::from(increment))?;
            self.streams.iter_mut().for_each(|stream| stream.is_blocked = false);
            return Ok(());
        }
        match self.find(id) {
            Some(at) => {
                let stream = &mut self.streams[at];
                stream.is_blocked = false;
                stream
                    .window
                    .grow(increment.into())
                    .map_err(|violation| Violation { stream: id, ..violation })
            }
            None if id > self.last_stream => Err(IDLE),
            None => Ok(()),
        }
    }

    /// Notes the priority of a stream, which may still have to begin.
    pub(super) fn set_priority(&mut self, id: u32, priority: Priority) {
        if let Some(at) = self.find(id) {
            self.streams[at].priority = priority;
        } else if id > self.last_stream {
            self.early_priorities.retain(|(early, _)| *early != id);
            if self.early_priorities.len() == H2_EARLY_PRIORITIES_MAX {
                self.early_priorities.remove(0);
            }
            self.early_priorities.push((id, priority));
        }
    }

    /// The priority of a new stream whose head has this one: a PRIORITY_UPDATE counts more (RFC 9218, section 7).
    pub(super) fn priority_of(&mut self, id: u32, of_head: Priority) -> Priority {
        if self.early_priorities.is_empty() {
            return of_head;
        }
        let early =
            self.early_priorities.iter().find(|(early, _)| *early == id).map(|(_, priority)| *priority);
        self.early_priorities.retain(|(early, _)| *early > id);
        early.unwrap_or(of_head)
    }
}
