//! One connection of a viber's machine.

use protocol::{TeamId, ViberId};

use crate::domain::{Actor, By};

/// A connection of a viber. Its frames count only while it is the viber's newest.
#[derive(Clone, Debug)]
pub struct Connection {
    pub team: TeamId,
    pub viber: ViberId,
    /// For the audit.
    pub name: String,
    pub address: String,
    pub epoch: u64,
}

impl Connection {
    /// The viber as the audit names it.
    pub fn by(&self) -> By {
        By { actor: Actor::Viber { id: self.viber.clone(), name: self.name.clone() }, address: self.address.clone() }
    }
}
