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

/// A stretch of a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Stretch<'a> {
    /// A sound record.
    Sound(Record<'a>),
    /// Bytes that are no sound record.
    Damaged(&'a [u8]),
}

/// All of a file: the sound records, also those behind damage, and the stretches between them.
///
/// What follows damage is searched for byte by byte. Payloads are JSON objects, in which no NUL stands, and every header
/// has some: what a model or a file wrote into a payload is never taken for a record.
pub fn salvage(bytes: &[u8]) -> impl Iterator<Item = Stretch<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        if let Some(record) = decode(&bytes[at..]) {
            at += record.size();
            return Some(Stretch::Sound(record));
        }
        let end = (at + 1..bytes.len()).find(|at| is_record(&bytes[*at..])).unwrap_or(bytes.len());
        let damaged = &bytes[at..end];
        at = end;
        Some(Stretch::Damaged(damaged))
    })
}

/// Whether a record of JSON starts here: nearly everywhere the first and last byte of a payload say no, before a sum is
/// computed.
fn is_record(bytes: &[u8]) -> bool {
    let length = bytes.first_chunk().map_or(u32::MAX, |length| u32::from_le_bytes(*length)) as usize;
    let is_object = length <= MAX_PAYLOAD
        && bytes.get(HEADER) == Some(&b'{')
        && bytes.get((HEADER + length).saturating_sub(1)) == Some(&b'}');
    is_object && decode(bytes).is_some()
}

/// What the header of a record says. It may be damaged.
pub struct Claim {
    pub from: u64,
    pub to: u64,
    /// Bytes of the whole record.
    pub size: usize,
}

/// What the header at the start of `bytes` says.
pub fn claim(bytes: &[u8]) -> Option<Claim> {
    let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    Some(Claim { from: number(8)?, to: number(16)?, size: HEADER + length })
}

/// Whether the end of a file is what a crash leaves of a record that was being written: its beginning.
pub fn is_torn(end: &[u8]) -> bool {
    let Some(length) = end.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) else { return true };
    length <= MAX_PAYLOAD && end.len() < HEADER + length && (end.len() <= HEADER || end[HEADER] == b'{')
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
            Stretch::Sound(record) => Some(record.from),
            Stretch::Damaged(_) => None,
        };
        salvage(bytes).filter_map(from).collect()
    }

    #[test]
    fn a_zeroed_page_and_a_record_within_a_payload_are_not_taken_for_records() {
        let mut inner = Vec::new();
        encode(&Record { from: 7, to: 7, payload: b"{}" }, &mut inner);
        // JSON writes the NULs of a header as text.
        let text = serde_json::to_vec(&serde_json::json!({ "a": String::from_utf8_lossy(&inner) })).expect("JSON");
        let mut bytes = file(&[b"{}".to_vec(), text, vec![b' '; 9000], b"{}".to_vec()]);
        let second = HEADER + 2;
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
        flipped[HEADER + 2] ^= 1;
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
            let hit = payloads.iter().position(|p| { end += p.len() + HEADER; bit / 8 < end }).expect("inside");
            let sound: Vec<u64> = sound(&bytes);
            let expected: Vec<u64> = (0..payloads.len() as u64).filter(|n| *n != hit as u64).collect();
            prop_assert_eq!(sound, expected);
        }

        #[test]
        fn every_byte_belongs_to_one_stretch(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let length = |stretch: &Stretch<'_>| match stretch {
                Stretch::Sound(record) => record.size(),
                Stretch::Damaged(damaged) => damaged.len(),
            };
            prop_assert_eq!(salvage(&bytes).map(|one| length(&one)).sum::<usize>(), bytes.len());
        }
    }
}
