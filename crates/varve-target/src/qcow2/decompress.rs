//! Compressed clusters: pure.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::io::Read;
use varve_block::MIB;
use varve_format::qcow2::Compression;

/// The longest history that a Zstandard frame may refer to: memory is taken for it before anything is read. A frame that holds a
/// cluster needs no more than the cluster, 2 MiB at most.
const WINDOW_MAX: u64 = 8 * MIB;

/// `size` bytes that are compressed at the beginning of `compressed`; what follows them there is something else. None if it is
/// damaged.
pub(super) fn decompress(compressed: &[u8], compression: Compression, size: usize) -> Option<Vec<u8>> {
    assert!(size.is_power_of_two(), "a cluster is decompressed");
    match compression {
        Compression::Deflate => inflate(compressed, size),
        Compression::Zstd => unzstd(compressed, size),
    }
}

fn inflate(compressed: &[u8], size: usize) -> Option<Vec<u8>> {
    use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
    let mut cluster = vec![0; size];
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let mut state = Box::<DecompressorOxide>::default();
    let (_, _, written) = decompress(&mut state, compressed, &mut cluster, 0, flags);
    (written == size).then_some(cluster)
}

fn unzstd(mut compressed: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW_MAX);
    decoder.init(&mut compressed).ok()?;
    // No more than one block beyond what is expected is ever in memory.
    let is_whole = decoder.decode_blocks(&mut compressed, BlockDecodingStrategy::UptoBytes(size + 1)).ok()?;
    let mut cluster = vec![0; size];
    decoder.read_exact(&mut cluster).ok()?;
    (is_whole && decoder.can_collect() == 0).then_some(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4096 times the byte 7, by `zstd`.
    const SEVENS: [u8; 19] = [
        0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x00, 0x0f, 0x4d, 0x00, 0x00, 0x10, 0x07, 0x07, 0x01, 0x00, 0xfb, 0xf7,
        0x01, 0x16,
    ];

    #[test]
    fn damage_is_noticed_and_takes_no_memory() {
        let padded = [&SEVENS[..], &[0xff; 493]].concat();
        assert_eq!(decompress(&padded, Compression::Zstd, 4096), Some(vec![7; 4096]));
        assert_eq!(decompress(&padded, Compression::Zstd, 2048), None);
        assert_eq!(decompress(&padded, Compression::Zstd, 8192), None);
        for compression in [Compression::Deflate, Compression::Zstd] {
            for length in 0..SEVENS.len() {
                assert_eq!(decompress(&SEVENS[..length], compression, 4096), None, "{length} bytes");
            }
            assert_eq!(decompress(&[0; 4096], compression, 4096), None);
        }
        // A window of 2 GiB.
        let huge = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
        assert_eq!(decompress(&huge, Compression::Zstd, 4096), None);
    }
}
