//! What every room of the Board shares. Cheap to clone.

use std::sync::Arc;

use crate::{clock::Clock, config::Config, db::Db, hub::Hub};

/// A running Board.
#[derive(Clone)]
pub struct Board {
    pub db: Db,
    pub hub: Hub,
    pub clock: Clock,
    pub config: Arc<Config>,
}
