//! Records of append-only files: a length, a checksum, the payload. What a crash tore off at the end is noticed.

/// Bytes before a payload: u32 length, u32 CRC-32 of all that follows, u64 first seq, u64 last seq, little-endian.
pub const HEADER: usize = 24;
/// A larger length is damage: no event is so long (the journal's commands are bounded by a frame).
pub const MAX_PAYLOAD: usize = 1024 * 1024;

/// One record as it lies in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The first and the last seq that the payload stands for.
    pub from: u64,
    pub to: u64,
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// Bytes in the file.
    pub fn size(&self) -> usize {
        HEADER + self.payload.len()
    }
}

/// Appends a record to `out`.
pub fn encode(record: &Record<'_>, out: &mut Vec<u8>) {
    out.extend((record.payload.len() as u32).to_le_bytes());
    let sum_at = out.len();
    out.extend([0; 4]);
    out.extend(record.from.to_le_bytes());
    out.extend(record.to.to_le_bytes());
    out.extend(record.payload);
    let sum = checksum(record.payload.len() as u32, &out[sum_at + 4..]);
    out[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// The record at the start of `bytes`; `None` when there is no whole and sound one.
pub fn decode(bytes: &[u8]) -> Option<Record<'_>> {
    let header = bytes.first_chunk::<HEADER>()?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
    let sum = u32::from_le_bytes(header[4..8].try_into().expect("four bytes"));
    if length as usize > MAX_PAYLOAD {
        return None;
    }
    let whole = bytes.get(..HEADER + length as usize)?;
    let sound = checksum(length, &whole[8..]) == sum;
    sound.then(|| Record { from: number(8), to: number(16), payload: &whole[HEADER..] })
}

/// The length is part of the sum: a damaged one must not make other bytes look sound.
fn checksum(length: u32, rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(rest);
    hasher.finalize()
}

/// The sound records from the start of `bytes`, each with its offset, until the first that is not.
pub fn scan(bytes: &[u8]) -> impl Iterator<Item = (usize, Record<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let record = decode(&bytes[at..])?;
        let found = (at, record);
        at += found.1.size();
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for (n, payload) in payloads.iter().enumerate() {
            encode(&Record { from: n as u64, to: n as u64, payload }, &mut out);
        }
        out
    }

    fn read(bytes: &[u8]) -> Vec<Vec<u8>> {
        scan(bytes).map(|(_, record)| record.payload.to_vec()).collect()
    }

    proptest! {
        #[test]
        fn a_cut_file_yields_its_whole_records(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = file(&payloads);
            let cut = cut.index(bytes.len() + 1);
            let got = read(&bytes[..cut]);
            prop_assert_eq!(&got[..], &payloads[..got.len()]);
            let whole: usize = payloads[..got.len()].iter().map(|p| p.len() + HEADER).sum();
            prop_assert!(got.len() == payloads.len() || cut < whole + payloads[got.len()].len() + HEADER);
        }

        #[test]
        fn a_flipped_bit_ends_the_file_there(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = file(&payloads);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut end = 0;
            let hit = payloads.iter().position(|p| { end += p.len() + HEADER; bit / 8 < end }).expect("inside");
            prop_assert_eq!(&read(&bytes)[..], &payloads[..hit]);
        }

        #[test]
        fn nonsense_is_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
