//! Why a viber did not answer a request, as an error for whoever asked.

use protocol::text::head;

use crate::{error::Error, hub::RequestError};

/// The conflict code when a viber is away and the Board remembers nothing to show.
pub const VIBER_AWAY: &str = "viber_away";
/// The conflict code when a viber is asked more at once than it answers.
pub const VIBER_BUSY: &str = "viber_busy";

/// The error; nothing of the answer is remembered elsewhere.
pub(in crate::actions) fn refused(error: RequestError) -> Error {
    match error {
        RequestError::Disconnected => Error::conflict(VIBER_AWAY, "the viber is away; only it can tell"),
        RequestError::TimedOut => Error::conflict("viber_silent", "the viber did not answer in time"),
        RequestError::Busy => Error::conflict(VIBER_BUSY, "the viber has too much to answer right now"),
        RequestError::Refused(told) if told.starts_with("not_found") => Error::NotFound,
        RequestError::Refused(told) => Error::unacceptable("viber_refused", head(&told, 300)),
    }
}
