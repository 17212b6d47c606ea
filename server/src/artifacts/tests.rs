//! The store by itself: what arrives is what is read, and nothing ends early.

use futures_util::StreamExt as _;
use protocol::{ArtifactId, TeamId, ViberId};

use super::*;

fn store(folder: &Path) -> BlobStore {
    let store = BlobStore::new(StoreAddress::Folder(folder.join("artifacts")), folder);
    store.open().expect("a store");
    store
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 31 % 251) as u8).collect()
}

async fn all(mut stream: Bytestream) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}

#[tokio::test]
async fn what_is_kept_is_read_in_any_range_and_taken_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, team, content) = (store(folder.path()), TeamId::new(1), bytes(300_000));
    let mut stage = store.stage("one").expect("a stage");
    content.chunks(100_000).for_each(|piece| stage.write(piece).expect("written"));
    let sha256 = stage.sha256();
    store.keep(stage, &team, &sha256).await.expect("kept");
    let size = content.len() as u64;
    for range in [0..size, 0..1, size - 1..size, 131_071..131_073, 5..5] {
        let read = store.read(&team, &sha256, range.clone()).await.expect("readable").expect("there");
        let (from, to) = (range.start as usize, range.end as usize);
        assert_eq!(all(read).await.expect("whole"), content[from..to], "{range:?}");
    }
    assert!(store.read(&TeamId::new(2), &sha256, 0..1).await.expect("readable").is_none());
    let short = store.read(&team, &sha256, 0..size + 1).await.expect("readable").expect("there");
    all(short).await.expect_err("less than promised is an error");
    store.remove_all(&TeamId::new(2)).await.expect("nothing of it");
    assert!(store.read(&team, &sha256, 0..1).await.expect("readable").is_some());
    store.remove_all(&team).await.expect("taken away");
    assert!(store.read(&team, &sha256, 0..1).await.expect("readable").is_none());
    store.remove(&team, &sha256).await.expect("again");
    assert!(store.read(&team, &sha256, 0..1).await.expect("readable").is_none());
    assert_eq!(store.signed(&team, &sha256, [("content-type", "x"), ("y", "z")]).await.expect("asked"), None);
}

#[tokio::test]
async fn a_reader_follows_what_arrives_and_never_gets_the_end_of_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, content) = (store(folder.path()), bytes(200_000));
    for (name, end) in [(1, TransitEnd::Stored), (2, TransitEnd::Mismatch)] {
        let want = WantedBlob {
            team: TeamId::new(1),
            viber: ViberId::new(1),
            artifact: ArtifactId::new(name),
            size: 200_000,
            sha256: "x".repeat(64),
        };
        let stage = || store.stage(want.artifact.as_str());
        let (transit, new) = store.transits.join(want.clone(), stage).expect("a transit");
        assert!(new && !store.transits.join(want.clone(), || panic!("it is there")).expect("the same").1);
        let mut reader = transit.read(0..200_000).expect("readable");
        transit.write(0, &[content[..1].to_vec().into(), content[1..].to_vec().into()]).expect("written");
        transit.write(0, &[content.clone().into()]).expect_err("another upload went on");
        let mut got = Vec::new();
        while got.len() < 200_000 - HELD_BACK_BYTES as usize {
            got.extend_from_slice(&reader.next().await.expect("more").expect("readable"));
        }
        assert_eq!(got.len(), 200_000 - HELD_BACK_BYTES as usize, "the end is held back");
        transit.end(end);
        store.transits.leave(&transit);
        assert!(store.transits.find(&want.artifact).is_none());
        match end {
            TransitEnd::Stored => {
                got.extend(all(reader).await.expect("the rest"));
                assert_eq!(got, content);
            }
            _ => {
                all(reader).await.expect_err("cut");
            }
        }
    }
}
