//! Who may command at the socket: whoever shows the key of this start and is not an agent's command.
//!
//! The key lies in `state/`, which a confined command cannot read. Where nothing confines commands they can, so a peer
//! is looked at too: what the daemon itself has started, what counts process ids of its own, and what is gone before it
//! could be looked at is refused. Unknown is refused.

use std::{fmt, io, path::Path};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::net::UnixStream;

use crate::{
    hold::Kin,
    home::{read_plain, write_private},
};

/// Bytes of a key; it is written in hexadecimal digits.
const KEY_BYTES: usize = 32;

/// What shows that somebody may read `state/`. New at every start of the daemon; never shown or logged.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(String);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    /// A new one, at `path` for whoever may read there.
    pub fn lay_down(path: &Path) -> io::Result<Self> {
        let bytes: [u8; KEY_BYTES] = rand::random();
        let key = Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        write_private(path, key.0.as_bytes())?;
        Ok(key)
    }

    /// The one that the running daemon laid down.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(Self(read_plain(path)?.trim().to_owned()))
    }

    /// Whether `shown` is this key; how long that takes tells nothing of it.
    pub fn opens(&self, shown: &Self) -> bool {
        self.0.as_bytes().ct_eq(shown.0.as_bytes()).into()
    }
}

/// Refuses a peer that is an agent's command, or may be one.
pub async fn admit(stream: &UnixStream) -> Result<(), &'static str> {
    let peer = stream.peer_cred().map_err(|_| "the system does not tell who asks")?;
    if peer.uid() != geteuid().as_raw() && peer.uid() != 0 {
        return Err("it is another user's");
    }
    // 0 for a process that this one cannot see.
    let pid = peer.pid().unwrap_or(0);
    // A look at /proc, which may take a moment where chains of parents are long.
    match tokio::task::spawn_blocking(move || Kin::of(pid)).await {
        Ok(Kin::Stranger) => Ok(()),
        Ok(Kin::Descendant) => Err("it is a command of an agent"),
        Ok(Kin::Apart) => Err("it runs in a namespace of its own"),
        Ok(Kin::Unknown) | Err(_) => Err("it is gone, and nobody can tell what it was"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_new_each_time_closed_and_silent() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("daemon.key");
        let (first, second) = (Key::lay_down(&path).expect("written"), Key::lay_down(&path).expect("written"));
        let read = Key::read(&path).expect("read");
        assert!(second.opens(&read) && !first.opens(&read) && !second.opens(&Key(String::new())));
        assert!(!second.opens(&Key(format!("{}0", read.0))) && read.0.len() == 2 * KEY_BYTES);
        assert!(!crate::home::open_to_others(&path));
        assert!(!format!("{read:?}").contains(&read.0[..8]));
    }
}
