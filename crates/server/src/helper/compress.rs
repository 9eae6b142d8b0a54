//! Compresses texts: the contents of files, for the store, and listings. Called by [`fill`](super::fill) and [`work`](super::work).

use std::io::{self, Write};

use flash_engine::NO_FORM;
use flash_engine::limits::LOAD_BYTES;
use flash_http::negotiate::Coding;

/// The content of a file in a coding, or [`NO_FORM`] if that is no shorter or does not fit one block.
///
/// Errors: those of the compressor, such as that memory is short.
pub(super) fn compress(content: &[u8], coding: Coding) -> io::Result<Vec<u8>> {
    let form = encode(content, coding, OF_FILES)?;
    let is_useful = form.len() < content.len() && form.len() as u64 <= LOAD_BYTES;
    Ok(if is_useful { form } else { NO_FORM.to_vec() })
}

/// A listing in a coding, however long that is.
///
/// Errors: as in [`compress`].
pub(super) fn compress_listing(text: &[u8], coding: Coding) -> io::Result<Vec<u8>> {
    encode(text, coding, OF_LISTINGS)
}

/// A piece of an answer as blocks of deflate that refer to nothing before them and end at a byte. None of them is the last (RFC 1951).
///
/// Errors: as in [`compress`].
pub(super) fn deflate(piece: &[u8]) -> io::Result<Vec<u8>> {
    // Bytes that do not become shorter grow a little for each block.
    let mut out = Vec::with_capacity(piece.len() + piece.len() / 8 + 64);
    let mut compressor = flate2::Compress::new(flate2::Compression::new(OF_ANSWERS), false);
    compressor.compress_vec(piece, &mut out, flate2::FlushCompress::Sync)?;
    if compressor.total_in() == piece.len() as u64 && out.len() < out.capacity() {
        Ok(out)
    } else {
        Err(io::Error::other("the piece grows"))
    }
}

/// How hard each compressor tries.
#[derive(Clone, Copy)]
struct Levels {
    brotli: i32,
    zstd: i32,
    gzip: u32,
}

/// The form of a file is made once and sent often. On source texts, higher levels take several times as long for a hundredth of
/// the size.
const OF_FILES: Levels = Levels { brotli: 5, zstd: 9, gzip: 6 };
/// A request waits for a listing, which can be long.
const OF_LISTINGS: Levels = Levels { brotli: 2, zstd: 3, gzip: 3 };
/// A request waits for each piece of an answer.
const OF_ANSWERS: u32 = 4;
/// The window, as a power of two: all of the longest text.
const BROTLI_WINDOW: i32 = 22;

fn encode(content: &[u8], coding: Coding, levels: Levels) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Br => brotli(content, levels.brotli),
        Coding::Zstd => zstd::bulk::compress(content, levels.zstd),
        Coding::Gzip => gzip(content, levels.gzip),
    }
}

fn brotli(content: &[u8], quality: i32) -> io::Result<Vec<u8>> {
    let parameters = brotli::enc::BrotliEncoderParams {
        quality,
        lgwin: BROTLI_WINDOW,
        size_hint: content.len(),
        ..Default::default()
    };
    let mut form = Vec::new();
    brotli::BrotliCompress(&mut &content[..], &mut form, &parameters)?;
    Ok(form)
}

fn gzip(content: &[u8], level: u32) -> io::Result<Vec<u8>> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
    encoder.write_all(content)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decompress(form: &[u8], coding: Coding) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            Coding::Br => drop(brotli::Decompressor::new(form, 4096).read_to_end(&mut content).unwrap()),
            Coding::Zstd => content = zstd::stream::decode_all(form).unwrap(),
            Coding::Gzip => drop(flate2::read::GzDecoder::new(form).read_to_end(&mut content).unwrap()),
        }
        content
    }

    #[test]
    fn a_form_is_shorter_and_has_the_content() {
        let content: Vec<u8> = (0..40_000u32).flat_map(|number| format!("{number} ").into_bytes()).collect();
        for coding in Coding::ALL {
            let form = compress(&content, coding).unwrap();
            assert!(form.len() < content.len() / 2, "{coding:?}: {} bytes", form.len());
            assert!(decompress(&form, coding) == content, "{coding:?}");
            assert_eq!(compress(&content, coding).unwrap(), form, "{coding:?}: the same bytes each time");
            for text in [&content[..], b"[]", b""] {
                assert!(decompress(&compress_listing(text, coding).unwrap(), coding) == text, "{coding:?}");
            }
        }
    }

    #[test]
    fn pieces_of_an_answer_can_be_joined() {
        let pieces: Vec<Vec<u8>> = (0..5u32)
            .map(|piece| {
                (0..6_000)
                    .flat_map(|number| format!("{} ", piece * number).into_bytes())
                    .take(32_768)
                    .collect()
            })
            .collect();
        let mut stream: Vec<u8> = pieces.iter().flat_map(|piece| deflate(piece).unwrap()).collect();
        assert!(stream.len() < pieces.concat().len() / 2);
        stream.extend([1, 0, 0, 0xff, 0xff]);
        let mut content = Vec::new();
        flate2::read::DeflateDecoder::new(&stream[..]).read_to_end(&mut content).unwrap();
        assert!(content == pieces.concat());
        // The engine stores such a piece as it is.
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(32_768)
        .collect();
        assert!(deflate(&noise).is_ok_and(|piece| piece.len() > noise.len()));
    }

    #[test]
    fn noise_has_no_form() {
        let mut state = 1u64;
        let mut noise = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let content: Vec<u8> = (0..5_000).map(&mut noise).collect();
        let long: Vec<u8> = (0..3_000_000).map(|number| noise(number) & 0x3f).collect();
        for coding in Coding::ALL {
            assert_eq!(compress(&content, coding).unwrap(), NO_FORM, "{coding:?}");
            assert_eq!(compress(&long, coding).unwrap(), NO_FORM, "{coding:?}: longer than a block");
        }
    }
}
