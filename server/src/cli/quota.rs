//! `team quota`: shows a team's usage and limit, changes the limit, recounts the usage.

use clap::Args;
use serde_json::json;

use super::{
    CliError,
    console::{remark, tell},
    people::{TeamArgs, find_team},
};
use crate::{actions::quota, domain::By, state::Board};

/// `team quota SLUG`.
#[derive(Debug, Args)]
pub struct QuotaArgs {
    #[command(flatten)]
    team: TeamArgs,
    /// New storage limit: bytes, or a number with KiB, MiB, GiB or TiB
    #[arg(long, value_name = "BYTES", value_parser = size)]
    storage: Option<u64>,
    /// Recount what the team uses
    #[arg(long)]
    recount: bool,
}

/// Parses a number of bytes with an optional unit.
fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let unit = units.iter().find_map(|(name, bits)| Some((text.strip_suffix(name)?, *bits)));
    let (number, bits) = unit.unwrap_or((text, 0));
    let number: u64 = number.trim().parse().map_err(|_| format!("{text:?} is not a number of bytes, like 50GiB"))?;
    let bytes = number.checked_mul(1 << bits).filter(|bytes| *bytes > 0 && i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| format!("{text:?} is zero or too large"))
}

/// Runs the command; prints the slug, the kind of quota, the usage and the limit.
pub async fn quota(board: &Board, args: QuotaArgs) -> Result<(), CliError> {
    let team = find_team(board, args.team.slug()).await?;
    if args.recount {
        let drift = quota::recount(board, &team.id).await?;
        remark(format_args!("the vibers were counted again; the usage was off by {drift} bytes"));
    }
    if let Some(bytes) = args.storage {
        quota::set(board, &By::console(), &team, bytes).await?;
    }
    let storage = quota::load(board, &team.id).await?;
    let (slug, used, limit) = (&team.slug, storage.used, storage.limit);
    let fact = json!({ "team": slug, "quota": "storage", "used": used, "limit": limit });
    tell(&fact, format_args!("{slug}\tstorage\t{used}\t{limit}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("1", 1), ("2KiB", 2048), ("50GiB", 50 << 30), ("1 TiB", 1 << 40)] {
            assert_eq!(super::size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "0", "-1", "1.5GiB", "GiB", "9000000TiB", "1gb"] {
            assert!(super::size(bad).is_err(), "{bad}");
        }
    }
}
