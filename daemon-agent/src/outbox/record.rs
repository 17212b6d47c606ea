//! Records of append-only files: a length, a checksum, the payload. A record that a crash left
//! incomplete at the end is detected.

/// Bytes before a payload: u32 length, u32 CRC-32 of everything after it, u64 first seq, u64 last seq; little-endian.
pub const HEADER_BYTES: usize = 24;
/// Largest payload: a greater length means damage, since no event is that long (a frame bounds the journal's commands).
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// One record in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The first and the last seq that the payload covers.
    pub from: u64,
    pub to: u64,
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// Bytes in the file.
    pub fn size(&self) -> usize {
        HEADER_BYTES + self.payload.len()
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

/// The record at the start of `bytes`; `None` if there is no complete and sound one.
pub fn decode(bytes: &[u8]) -> Option<Record<'_>> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let number = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let length = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
    let sum = u32::from_le_bytes(header[4..8].try_into().expect("four bytes"));
    if length as usize > MAX_PAYLOAD_BYTES {
        return None;
    }
    let whole = bytes.get(..HEADER_BYTES + length as usize)?;
    let sound = checksum(length, &whole[8..]) == sum;
    sound.then(|| Record { from: number(8), to: number(16), payload: &whole[HEADER_BYTES..] })
}

/// Covers the length too: a damaged length must not make other bytes look sound.
fn checksum(length: u32, rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(rest);
    hasher.finalize()
}

/// The valid records from the start of `bytes` up to the first invalid one, each with its offset.
pub fn scan(bytes: &[u8]) -> impl Iterator<Item = (usize, Record<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let record = decode(&bytes[at..])?;
        let found = (at, record);
        at += found.1.size();
        Some(found)
    })
}

/// A part of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum FileSpan<'a> {
    /// A sound record.
    Sound(Record<'a>),
    /// Bytes that are not a sound record.
    Damaged(&'a [u8]),
}

/// The whole file: sound records, including those after damage, and the stretches between them.
///
/// After damage, the next record is searched for byte by byte. Payloads are JSON objects, which contain no NUL, and
/// every header contains some: text that a model or a file put into a payload is never mistaken for a record.
pub fn salvage(bytes: &[u8]) -> impl Iterator<Item = FileSpan<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        if let Some(record) = decode(&bytes[at..]) {
            at += record.size();
            return Some(FileSpan::Sound(record));
        }
        let end = (at + 1..bytes.len()).find(|at| is_record(&bytes[*at..])).unwrap_or(bytes.len());
        let damaged = &bytes[at..end];
        at = end;
        Some(FileSpan::Damaged(damaged))
    })
}

/// Whether a JSON record starts here. Nearly everywhere, the first and last byte of a payload already rule it out,
/// before a checksum is computed.
fn is_record(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map_or(u32::MAX, |length| u32::from_le_bytes(*length)) as usize;
    let is_object = length <= MAX_PAYLOAD_BYTES
        && bytes.get(HEADER_BYTES) == Some(&b'{')
        && bytes.get((HEADER_BYTES + length).saturating_sub(1)) == Some(&b'}');
    is_object && decode(bytes).is_some()
}

/// What a record's header says, which may be damaged.
pub struct HeaderClaim {
    pub from: u64,
    pub to: u64,
    /// Bytes of the whole record.
    pub size: usize,
}

/// What the header at the start of `bytes` says.
pub fn claim(bytes: &[u8]) -> Option<HeaderClaim> {
    let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    Some(HeaderClaim { from: number(8)?, to: number(16)?, size: HEADER_BYTES + length })
}

/// Whether the end of a file is the beginning of a record that a crash interrupted.
pub fn is_torn(end: &[u8]) -> bool {
    let Some(length) = end.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) else { return true };
    length <= MAX_PAYLOAD_BYTES
        && end.len() < HEADER_BYTES + length
        && (end.len() <= HEADER_BYTES || end[HEADER_BYTES] == b'{')
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

    fn sound(bytes: &[u8]) -> Vec<u64> {
        let from = |stretch| match stretch {
            FileSpan::Sound(record) => Some(record.from),
            FileSpan::Damaged(_) => None,
        };
        salvage(bytes).filter_map(from).collect()
    }

    #[test]
    fn a_zeroed_page_and_a_record_within_a_payload_are_not_taken_for_records() {
        let mut inner = Vec::new();
        encode(&Record { from: 7, to: 7, payload: b"{}" }, &mut inner);
        // JSON escapes the NULs of a header.
        let text = serde_json::to_vec(&serde_json::json!({ "a": String::from_utf8_lossy(&inner) })).expect("JSON");
        let mut bytes = file(&[b"{}".to_vec(), text, vec![b' '; 9000], b"{}".to_vec()]);
        let second = HEADER_BYTES + 2;
        bytes[second] ^= 1;
        bytes[2000..6096].fill(0);
        assert_eq!(sound(&bytes), [0, 3]);
    }

    #[test]
    fn an_end_is_torn_or_damaged() {
        let whole = file(&[b"{\"a\":1}".to_vec()]);
        for cut in 0..whole.len() {
            assert!(is_torn(&whole[..cut]), "{cut}");
        }
        let mut flipped = whole.clone();
        flipped[HEADER_BYTES + 2] ^= 1;
        assert!(!is_torn(&flipped) && !is_torn(&[0; 600]) && !is_torn(&[0xff; 30]));
        let claim = claim(&flipped).expect("a header");
        assert_eq!((claim.from, claim.to, claim.size), (0, 0, flipped.len()));
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
            let whole: usize = payloads[..got.len()].iter().map(|p| p.len() + HEADER_BYTES).sum();
            prop_assert!(got.len() == payloads.len() || cut < whole + payloads[got.len()].len() + HEADER_BYTES);
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
            let hit = payloads.iter().position(|p| { end += p.len() + HEADER_BYTES; bit / 8 < end }).expect("inside");
            prop_assert_eq!(&read(&bytes)[..], &payloads[..hit]);
        }

        #[test]
        fn nonsense_is_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = (salvage(&bytes).count(), claim(&bytes), is_torn(&bytes));
        }

        #[test]
        fn what_lies_around_a_damaged_record_is_found(
            texts in prop::collection::vec("[a-z]{0,40}", 1..12),
            bit in any::<prop::sample::Index>(),
        ) {
            let payloads: Vec<Vec<u8>> = texts.iter().map(|text| format!("{{\"a\":\"{text}\"}}").into_bytes()).collect();
            let mut bytes = file(&payloads);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let mut end = 0;
            let hit = payloads.iter().position(|p| { end += p.len() + HEADER_BYTES; bit / 8 < end }).expect("inside");
            let sound: Vec<u64> = sound(&bytes);
            let expected: Vec<u64> = (0..payloads.len() as u64).filter(|n| *n != hit as u64).collect();
            prop_assert_eq!(sound, expected);
        }

        #[test]
        fn every_byte_belongs_to_one_stretch(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let length = |stretch: &FileSpan<'_>| match stretch {
                FileSpan::Sound(record) => record.size(),
                FileSpan::Damaged(damaged) => damaged.len(),
            };
            prop_assert_eq!(salvage(&bytes).map(|one| length(&one)).sum::<usize>(), bytes.len());
        }
    }
}
