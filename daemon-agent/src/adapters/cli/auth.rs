//! Authenticates clients of the socket: a client must present the key that was created at this start of the daemon, and
//! must not be a command of an agent.
//!
//! The key lies in `state/`, which a confined command cannot read. Where nothing confines commands, they can read it,
//! so the peer process is examined as well: anything started by the daemon, anything with a process namespace of its
//! own, and anything that is gone before it could be examined is refused. In doubt, a client is refused.

use std::{fmt, io, path::Path};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::net::UnixStream;

use crate::{
    hold::Ancestry,
    home::{read_plain, write_private},
};

/// Random bytes in a key, which is written in hexadecimal.
const KEY_BYTES: usize = 32;

/// Proves that a client may read `state/`. New at every start of the daemon; never shown or logged.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SocketKey(String);

impl fmt::Debug for SocketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl SocketKey {
    /// Creates a new key and writes it to `path`, for those who may read there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let bytes: [u8; KEY_BYTES] = rand::random();
        let key = Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        write_private(path, key.0.as_bytes())?;
        Ok(key)
    }

    /// Reads the key that the running daemon wrote.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(Self(read_plain(path)?.trim().to_owned()))
    }

    /// Whether `shown` is this key. The comparison takes constant time.
    pub fn opens(&self, shown: &Self) -> bool {
        self.0.as_bytes().ct_eq(shown.0.as_bytes()).into()
    }
}

/// Refuses a peer that is, or may be, an agent's command.
pub async fn admit(stream: &UnixStream) -> Result<(), &'static str> {
    let peer = stream.peer_cred().map_err(|_| "the system does not identify the client")?;
    if peer.uid() != geteuid().as_raw() && peer.uid() != 0 {
        return Err("it belongs to another user");
    }
    // 0 for a process that this one cannot see.
    let pid = peer.pid().unwrap_or(0);
    // Reads /proc, which can take a moment where chains of parents are long.
    match tokio::task::spawn_blocking(move || Ancestry::of(pid)).await {
        Ok(Ancestry::Stranger) => Ok(()),
        Ok(Ancestry::Descendant) => Err("it is a command of an agent"),
        Ok(Ancestry::Apart) => Err("it runs in a namespace of its own"),
        Ok(Ancestry::Unknown) | Err(_) => Err("it ended before it could be identified"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_new_each_time_closed_and_silent() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("daemon.key");
        let (first, second) = (SocketKey::create(&path).expect("written"), SocketKey::create(&path).expect("written"));
        let read = SocketKey::read(&path).expect("read");
        assert!(second.opens(&read) && !first.opens(&read) && !second.opens(&SocketKey(String::new())));
        assert!(!second.opens(&SocketKey(format!("{}0", read.0))) && read.0.len() == 2 * KEY_BYTES);
        assert!(!crate::home::open_to_others(&path));
        assert!(!format!("{read:?}").contains(&read.0[..8]));
    }
}
