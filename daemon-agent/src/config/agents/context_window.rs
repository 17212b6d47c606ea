//! The context windows of models: what the agent's file says, else what the provider said, else what is known of well-known
//! models, else what an error told. An error that told less than these is believed.

pub mod known_models;

use protocol::{
    context::{ContextWindow, WindowSource},
    limits::DEFAULT_CONTEXT_WINDOW_TOKENS,
};

use known_models::{KnownModel, is_plausible};

/// Tokens by the beginning of the model's name, more specific names first (providers' model pages, 2026).
const CONTEXT_WINDOWS: &[(&str, u64)] = &[
    ("claude-", 200_000),
    ("gpt-5", 400_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4", 200_000),
    ("gemini-", 1_048_576),
    ("deepseek-", 131_072),
];

/// The window of `model`, `own` when the agent's file says it; a small one is assumed if nothing is known. Gateways' vendor
/// prefixes are skipped. An error that told a smaller window is believed until the provider says something else.
pub fn of(model: &str, own: Option<u64>, known: Option<&KnownModel>) -> ContextWindow {
    let name = model.rsplit('/').next().unwrap_or(model);
    let table = CONTEXT_WINDOWS.iter().find(|(start, _)| name.starts_with(start)).map(|(_, window)| *window);
    let said = known.and_then(|known| known.asked).and_then(|asked| Some((asked.tokens?, asked.at)));
    let said = said.filter(|(tokens, _)| is_plausible(*tokens));
    let learnt = known.and_then(|known| known.learnt).filter(|learnt| is_plausible(learnt.tokens));
    let window = match (own, said, table) {
        (Some(tokens), ..) => ContextWindow { tokens, source: WindowSource::Configured, at: None },
        (None, Some((tokens, at)), _) => ContextWindow { tokens, source: WindowSource::Provider, at: Some(at) },
        (None, None, Some(tokens)) => ContextWindow { tokens, source: WindowSource::Table, at: None },
        (None, None, None) => {
            ContextWindow { tokens: DEFAULT_CONTEXT_WINDOW_TOKENS, source: WindowSource::Assumed, at: None }
        }
    };
    match learnt {
        Some(learnt)
            if window.source == WindowSource::Assumed
                || (learnt.tokens < window.tokens && said.is_none_or(|(_, at)| at < learnt.at)) =>
        {
            ContextWindow { tokens: learnt.tokens, source: WindowSource::Learnt, at: Some(learnt.at) }
        }
        _ => window,
    }
}

#[cfg(test)]
mod tests {
    use protocol::Instant;

    use super::{
        known_models::{AskedWindow, KnownModels, LearntWindow},
        *,
    };
    use crate::home::Home;

    #[test]
    fn the_best_source_is_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let known = |said: Option<(u64, i64)>, learnt: Option<(u64, i64)>| {
            let change = |known: &mut KnownModel| {
                known.asked =
                    said.map(|(tokens, at)| AskedWindow { at: Instant(at), tokens: Some(tokens), answered: true });
                known.learnt = learnt.map(|(tokens, at)| LearntWindow { at: Instant(at), tokens });
            };
            KnownModels::change(&home, ("a/m", "http://a.test"), Instant(0), change).expect("written")
        };
        use WindowSource::{Assumed, Configured, Learnt, Provider, Table};
        for (model, own, said, learnt, expected) in [
            ("a/m", Some(9_000), Some((8_000, 1)), None, (9_000, Configured)),
            ("a/m", Some(9_000), None, Some((7_000, 2)), (7_000, Learnt)),
            ("a/m", Some(9_000), Some((8_000, 1)), Some((7_000, 2)), (7_000, Learnt)),
            ("a/m", Some(9_000), Some((8_000, 3)), Some((7_000, 2)), (9_000, Configured)),
            ("a/m", Some(6_000), None, Some((7_000, 2)), (6_000, Configured)),
            ("a/gpt-5", None, Some((8_000, 1)), None, (8_000, Provider)),
            ("a/gpt-5", None, None, None, (400_000, Table)),
            ("a/gpt-5", None, None, Some((128_000, 1)), (128_000, Learnt)),
            ("a/gpt-5", None, None, Some((500_000, 1)), (400_000, Table)),
            ("a/m", None, Some((8_000, 1)), Some((7_000, 2)), (7_000, Learnt)),
            ("a/m", None, Some((8_000, 3)), Some((7_000, 2)), (8_000, Provider)),
            ("a/m", None, None, Some((131_072, 2)), (131_072, Learnt)),
            ("a/m", None, Some((0, 3)), Some((u64::MAX, 2)), (DEFAULT_CONTEXT_WINDOW_TOKENS, Assumed)),
            ("a/gpt-5", None, Some((16_000_001, 3)), Some((12, 2)), (400_000, Table)),
        ] {
            let window = of(model, own, Some(&known(said, learnt)));
            assert_eq!((window.tokens, window.source), expected, "{model} {own:?} {said:?} {learnt:?}");
            assert_eq!(window.at.is_some(), matches!(window.source, Provider | Learnt));
        }
        assert_eq!(of("a/m", None, None).source, Assumed);
    }
}
