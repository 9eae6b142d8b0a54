//! Kernel stacks, each kept once, with what they say.
//!
//! The analysis puts them in when a thread leaves its core.

use std::collections::HashMap;

use crate::calls::{self, NO_CALL, PAGE_FAULT};
use crate::model::Reason;
use crate::reason::reason;
use crate::world::World;

/// Different stacks that are kept, at most; a wait in another one has none.
const STACKS_MAX: usize = 1 << 14;

/// Numbers stand for stacks.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    numbers: HashMap<Vec<u64>, u32>,
    stacks: Vec<Stack>,
}

#[derive(Debug)]
struct Stack {
    functions: Vec<String>,
    /// By what was called.
    reasons: Vec<(u64, Reason)>,
}

impl Stacks {
    /// The number of a stack, the innermost frame first.
    pub(super) fn number(&mut self, frames: Vec<u64>, world: &impl World) -> Option<u32> {
        if let Some(number) = self.numbers.get(&frames) {
            return Some(*number);
        }
        if self.stacks.len() >= STACKS_MAX {
            return None;
        }
        let functions = frames.iter().filter_map(|frame| world.function(*frame)).map(str::to_owned).collect();
        let number = self.stacks.len() as u32;
        self.stacks.push(Stack { functions, reasons: Vec::new() });
        self.numbers.insert(frames, number);
        Some(number)
    }

    /// The number of a stack that is known by its functions alone.
    pub(super) fn of_functions(&mut self, functions: Vec<String>) -> Option<u32> {
        if functions.is_empty() || self.stacks.len() >= STACKS_MAX {
            return None;
        }
        self.stacks.push(Stack { functions, reasons: Vec::new() });
        Some(self.stacks.len() as u32 - 1)
    }

    pub(super) fn functions(&self, number: Option<u32>) -> &[String] {
        number.and_then(|number| self.stacks.get(number as usize)).map_or(&[], |stack| &stack.functions)
    }

    /// Why a thread waits in it that has called `call`.
    pub(super) fn reason(&mut self, number: Option<u32>, call: u64) -> Reason {
        let Some(stack) = number.and_then(|number| self.stacks.get_mut(number as usize)) else {
            return reason(&[], &calls::name(call));
        };
        if let Some((_, found)) = stack.reasons.iter().find(|(of, _)| *of == call) {
            return *found;
        }
        let functions: Vec<&str> = stack.functions.iter().map(String::as_str).collect();
        let found = reason(&functions, &calls::name(call));
        stack.reasons.push((call, found));
        found
    }

    /// Whether a thread does not wait in it, but was stopped: by a debugger, by strace, by a signal.
    pub(super) fn is_stop(&self, number: Option<u32>) -> bool {
        const STOPS: [&str; 2] = ["ptrace_stop", "do_signal_stop"];
        self.functions(number).iter().any(|function| STOPS.contains(&function.as_str()))
    }

    /// The pseudo call of a thread that waits in this stack outside of a call, after the call `last`.
    pub(super) fn outside_call(&self, number: Option<u32>, last: Option<u64>) -> u64 {
        let has = |name: &str| self.functions(number).iter().any(|function| function.contains(name));
        if has("page_fault") || has("handle_mm_fault") {
            PAGE_FAULT
        } else if has("task_work_run") {
            // The kernel does the deferred work of a close after it has counted the call as ended.
            last.unwrap_or(NO_CALL)
        } else {
            NO_CALL
        }
    }
}
