//! The kernel's functions by address, from /proc/kallsyms.
//!
//! Read once, before a trace begins. It knows nothing of what a function means.

use std::fs;

#[derive(Debug, Default)]
pub(crate) struct Symbols {
    starts: Vec<(u64, u32, u32)>,
    names: String,
}

impl Symbols {
    /// Those of the running kernel; none of them when it hides its addresses (`kptr_restrict`) from us.
    pub(crate) fn of_kernel() -> Self {
        let text = fs::read("/proc/kallsyms").unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Self {
        let mut symbols = Self::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address != 0 && matches!(kind, "T" | "t" | "W" | "w") {
                // A variant that the compiler made of a function (`.isra.0`, `.cold`) is that function.
                let name = name.split('.').next().unwrap_or(name);
                let from = symbols.names.len() as u32;
                symbols.names.push_str(name);
                symbols.starts.push((address, from, symbols.names.len() as u32));
            }
        }
        symbols.starts.sort_unstable();
        symbols
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        let after = self.starts.partition_point(|(start, ..)| *start <= address);
        let (_, from, to) = self.starts.get(after.checked_sub(1)?)?;
        self.names.get(*from as usize..*to as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_function_before_it() {
        let text = "0000000000002000 t io_schedule\n0000000000001000 T schedule.part.0\n0000000000001500 D data\n0000000000003000 t ext4_map\t[ext4]\nbad\n";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.name(0xfff), None);
        assert_eq!(symbols.name(0x1000), Some("schedule"));
        assert_eq!(symbols.name(0x1fff), Some("schedule"));
        assert_eq!(symbols.name(0x2010), Some("io_schedule"));
        assert_eq!(symbols.name(u64::MAX), Some("ext4_map"));
    }

    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(Symbols::parse("0000000000000000 T schedule\n").is_empty());
    }
}
