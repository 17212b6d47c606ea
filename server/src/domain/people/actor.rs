//! Who acts, and from where: what the audit records.

use protocol::{LoginId, OperatorId, TokenId, ViberId};

/// Somebody or something that acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    Operator {
        id: OperatorId,
        name: String,
        login: LoginId,
    },
    Token {
        id: TokenId,
        name: String,
    },
    Viber {
        id: ViberId,
        name: String,
    },
    /// A command line on the Board's own machine.
    Console,
    /// The Board itself: leases, retention.
    Board,
}

impl Actor {
    /// The id as audit rows, messages and idempotency keys keep it.
    pub fn id(&self) -> &str {
        match self {
            Self::Operator { id, .. } => id.as_str(),
            Self::Token { id, .. } => id.as_str(),
            Self::Viber { id, .. } => id.as_str(),
            Self::Console => "console",
            Self::Board => "board",
        }
    }

    /// The name people know it by.
    pub fn name(&self) -> &str {
        match self {
            Self::Operator { name, .. } | Self::Token { name, .. } | Self::Viber { name, .. } => name,
            Self::Console => "Console",
            Self::Board => "Board",
        }
    }
}

/// An actor and the address it acts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    pub actor: Actor,
    /// The peer's address, or the one a trusted proxy reports; empty for `Console` and `Board`.
    pub address: String,
}

impl By {
    /// The Board acting by itself.
    pub fn board() -> Self {
        Self { actor: Actor::Board, address: String::new() }
    }

    /// A command line on the Board's machine.
    pub fn console() -> Self {
        Self { actor: Actor::Console, address: String::new() }
    }
}
