//! The program for the kernel that finds the class of a packet, as an object file that `tc` loads.
//!
//! Called by `plan`, for kernels that have `htb` and `bpf` but neither `prio` nor `flow`. Pure. The file is made here, and
//! not by a compiler, because it has three instructions and clang is large.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The section with the instructions. `tc` takes programs from sections of this name.
pub(super) const SECTION: &str = "classifier";

/// Where a program finds the priority in its view of a packet (`struct __sk_buff`, linux/bpf.h).
const PRIORITY_OFFSET: i16 = 32;
/// The bytes of a header of an ELF file, and of each header of a section (elf(5)).
const HEADER_BYTES: usize = 64;
/// The machine of instructions for the kernel (elf.h, `EM_BPF`).
const MACHINE: u16 = 247;
/// Names, each with its end: the first is empty.
const NAMES: &str = "\0classifier\0license\0.symtab\0.strtab\0bands\0";

/// An object file with a program that returns the class `first` plus the priority of the packet. Classes have their major
/// number in the upper half.
pub(super) fn classifier(first: u32) -> Vec<u8> {
    let code = [
        // r0 = packet->priority (BPF_LDX | BPF_MEM | BPF_W, from r1)
        instruction(0x61, 0x10, PRIORITY_OFFSET, 0),
        // r0 += first (BPF_ALU | BPF_ADD | BPF_K), with 32 bits: the result is an int.
        instruction(0x04, 0, 0, first),
        // return r0 (BPF_JMP | BPF_EXIT)
        instruction(0x95, 0, 0, 0),
    ]
    .concat();
    // The kernel asks no licence of a program that calls none of its functions, but libbpf wants one.
    let license = b"Dual MIT/GPL\0\0\0\0".to_vec();
    let mut symbols = vec![0; 24];
    // A global function of section 1, from its beginning.
    symbols.extend(name_at("bands").to_le_bytes());
    symbols.extend([0x12, 0, 1, 0]);
    symbols.extend(0_u64.to_le_bytes());
    symbols.extend((code.len() as u64).to_le_bytes());
    let mut names = NAMES.as_bytes().to_vec();
    names.resize(names.len().next_multiple_of(8), 0);

    let mut file = vec![0; HEADER_BYTES];
    // An empty header begins the list of sections.
    let mut sections = vec![0; HEADER_BYTES];
    let parts: [(&str, Vec<u8>, [u64; 6]); 4] = [
        // Type, flags, link, info, alignment, length of an entry.
        (SECTION, code, [1, 6, 0, 0, 8, 0]),
        ("license", license, [1, 3, 0, 0, 1, 0]),
        (".symtab", symbols, [2, 0, 4, 1, 8, 24]),
        (".strtab", names, [3, 0, 0, 0, 1, 0]),
    ];
    for (name, bytes, [kind, flags, link, info, alignment, entry]) in parts {
        sections.extend(name_at(name).to_le_bytes());
        sections.extend((kind as u32).to_le_bytes());
        for number in [flags, 0, file.len() as u64, bytes.len() as u64] {
            sections.extend(number.to_le_bytes());
        }
        sections.extend((link as u32).to_le_bytes());
        sections.extend((info as u32).to_le_bytes());
        sections.extend(alignment.to_le_bytes());
        sections.extend(entry.to_le_bytes());
        file.extend(bytes);
    }
    let header = header(file.len() as u64);
    file[..HEADER_BYTES].copy_from_slice(&header);
    file.extend(sections);
    file
}

/// The header of a file whose sections' headers begin at `sections_at`.
fn header(sections_at: u64) -> Vec<u8> {
    // 64 bits, the order of bytes of x86 and ARM, version 1.
    let mut header = b"\x7fELF\x02\x01\x01".to_vec();
    header.resize(16, 0);
    // A relocatable file.
    header.extend(1_u16.to_le_bytes());
    header.extend(MACHINE.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    // No entry and no segments.
    header.extend([0; 16]);
    header.extend(sections_at.to_le_bytes());
    header.extend(0_u32.to_le_bytes());
    // The length of this header; no segments; five headers of sections; the names are in section 4.
    for number in [HEADER_BYTES as u16, 0, 0, HEADER_BYTES as u16, 5, 4] {
        header.extend(number.to_le_bytes());
    }
    header
}

fn instruction(operation: u8, registers: u8, offset: i16, immediate: u32) -> [u8; 8] {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = immediate.to_le_bytes();
    [operation, registers, low, high, a, b, c, d]
}

/// The place of a name that [`NAMES`] has.
fn name_at(name: &str) -> u32 {
    NAMES.find(&format!("\0{name}\0")).map_or(0, |before| before as u32 + 1)
}

/// In Base64 (RFC 4648, section 4), in lines of 76 characters.
pub(super) fn base64(bytes: &[u8]) -> String {
    // 57 bytes make 76 characters.
    bytes.chunks(57).map(|line| STANDARD.encode(line) + "\n").collect()
}
