//! `join`: enrols this machine and writes the files that are missing. `leave` is its reverse.

pub(super) mod leave;

use std::{fs, path::Path};

use serde_json::json;

use super::{CliError, Join, console::remark, open, run, service, unusable};
use crate::{
    adapters::board::{Credential, address, credential::JoinRequest, hostname},
    home::{Home, replace_text},
};

/// `config.yaml` of a new home: no settings yet, but an explanation of them.
const CONFIG_TEMPLATE: &str = "\
# This machine's model providers and defaults; values may name the environment as ${VAR}.
# Without an entry here anthropic, openai, openrouter, deepseek and ollama are known by their usual variables,
# and by `daemon-agent key set PROVIDER`.
#
# providers:
#   local: { api: ollama, baseUrl: http://127.0.0.1:11434 }
# defaults: { model: anthropic/claude-sonnet-4-5 }
# maxTasks: 4                     # at once on this machine
# onDisconnect: continue          # or: stop_after SECONDS
# boardKeys: off                 # on: admins of the Board may set and remove providers' keys here
# boardAgents: off                # on: admins of the Board may add agents from templates here
# dailyLog: true                  # one entry a task in workspace/memory/YYYY-MM-DD.md
# memory: { embeddings: openai/text-embedding-3-small }   # find by meaning too; passages go to that provider
# sandbox: { write: [~/.cargo, ~/.npm, ~/.cache] }
";

/// Where the template says how to let the Board set keys.
const BOARD_KEYS_OFF: &str = "# boardKeys: off ";

/// Enrols this machine.
pub async fn join(home: &Home, join: Join) -> Result<(), CliError> {
    let board = address::parse(&join.url, join.insecure).map_err(CliError::Configuration)?;
    open(home)?;
    let there = Credential::read(home).map_err(|error| CliError::Configuration(error.to_string()))?;
    if let Some(there) = there {
        return Err(CliError::Configuration(format!(
            "this home already is {} at {}: to join another Board, use another home (OPENVIBER_HOME) or delete {}",
            there.viber_id,
            there.board_url,
            home.credential().display()
        )));
    }
    let mut spaces = Vec::new();
    for space in &join.space {
        let whole = fs::canonicalize(space)
            .map_err(|error| CliError::Usage(format!("--space {}: {error}", space.display())))?;
        if !whole.is_dir() {
            return Err(CliError::Usage(format!("--space {} is not a folder", space.display())));
        }
        spaces.push(whole);
    }
    let name = join.name.clone().unwrap_or_else(hostname);
    let labels = join.labels.clone().unwrap_or_default();
    let joining = JoinRequest { token: join.token.trim(), name: &name, labels: &labels, insecure: join.insecure };
    let credential = Credential::join(&board, &joining).await.map_err(CliError::Failed)?;
    credential.write(home).map_err(|error| CliError::Failed(format!("the credential cannot be saved: {error}")))?;
    if join.board_keys {
        let (config, text) = (home.config(), CONFIG_TEMPLATE.replace(BOARD_KEYS_OFF, "boardKeys: on    "));
        if !replace_text(&config, None, &text).map_err(|error| unusable("config.yaml", &error))? {
            remark(format_args!("{} is there already: write `boardKeys: on` into it yourself.", config.display()));
        }
    }
    let wrote = write_missing(home, &spaces)
        .map_err(|error| CliError::Failed(format!("the default agent cannot be written: {error}")))?;
    if join.json {
        let of_team = credential.team.as_deref();
        say!(
            "{}",
            json!({ "viberId": credential.viber_id, "name": name, "board": board.as_str(), "team": of_team, "home": home.root() })
        );
        return Ok(());
    }
    let team = credential.team.as_deref().map(|team| format!(" in the team {team}")).unwrap_or_default();
    say!("{name} joined {board} as {}{team}.", credential.viber_id);
    if wrote {
        say!("Its default agent is {}.", home.agents().join("default.yaml").display());
    }
    for space in spaces.iter().filter(|space| holds_home(space, home)) {
        say!("{}", too_wide(space, home));
    }
    if spaces.is_empty() {
        say!("It works in {}; add folders under `spaces:` in the agent's file.", home.workspace().display());
    }
    if join.service {
        return service::install(home, false);
    }
    if join.run {
        return run::run(home, false).await;
    }
    let own = std::env::current_exe().ok().and_then(|exe| exe.to_str().map(str::to_owned));
    let own = own.unwrap_or_else(|| "daemon-agent".to_owned());
    match std::env::var_os("OPENVIBER_HOME") {
        Some(root) => say!("Next: OPENVIBER_HOME={} {own} run", root.to_string_lossy()),
        None => say!("Next: {own} run     (or: {own} service install)"),
    }
    Ok(())
}

/// Whether a space contains the viber's own home.
pub fn holds_home(space: &Path, home: &Home) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    real(home.root()).starts_with(real(space))
}

/// The warning for such a space.
pub fn too_wide(space: &Path, home: &Home) -> String {
    format!(
        "Warning: the space {} holds the viber's own home {}. Its keys and configuration stay closed to the agent, but \
         commands cannot make new files directly in {} or in folders on the way to the home, only in the folders \
         beside it: name the projects' folders instead.",
        space.display(),
        home.root().display(),
        space.display()
    )
}

/// Writes `config.yaml` and the default agent if they are missing. True if the agent was written.
pub fn write_missing(home: &Home, spaces: &[impl AsRef<Path>]) -> std::io::Result<bool> {
    replace_text(&home.config(), None, CONFIG_TEMPLATE)?;
    let path = home.agents().join("default.yaml");
    let mut text = String::from(
        "# The agent that tasks get when they name none. Checked by `daemon-agent config validate`;\n# a change is picked up without a restart.\nname: Default\ndescription: Does coding work in the declared spaces\n# model: anthropic/claude-sonnet-4-5   # provider/model; without one the built-in demo/tour\nmaxSteps: 25\nmode: always_execute\ntools: [file, search, shell, plan, artifact, memory, ask]\n",
    );
    if spaces.is_empty() {
        text.push_str(
            "# spaces: [~/code/my-project]         # folders it may work in; the workspace when there is none\n",
        );
    } else {
        text.push_str("spaces:\n");
        for space in spaces {
            // Every JSON string is a valid YAML string.
            text.push_str(&format!("  - {}\n", serde_json::to_string(&space.as_ref().to_string_lossy())?));
        }
    }
    replace_text(&path, None, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigSnapshot, Variables};

    #[test]
    fn the_default_agent_is_what_its_page_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        assert!(write_missing(&home, &["/tmp/my \"code\": x"]).expect("written"));
        assert!(!write_missing(&home, &["/other"]).expect("kept"));
        let agent = ConfigSnapshot::read(&home, &Variables::default()).agent("default").expect("there").expect("good");
        assert_eq!((agent.max_steps, agent.model.as_str()), (25, "demo/tour"));
        // Whom it may call is for people to say.
        let others = crate::config::toolset::ALL_TOOLS;
        let kept: Vec<_> = others.iter().filter(|tool| !crate::config::toolset::MESH_TOOLS.contains(tool)).collect();
        assert_eq!(
            agent.tools.iter().map(String::as_str).collect::<Vec<_>>(),
            kept.into_iter().copied().collect::<Vec<_>>()
        );
        assert_eq!(agent.spaces, [Path::new("/tmp/my \"code\": x")]);
        assert!(!crate::home::open_to_others(&home.config()));
        assert!(agent.not_in_effect.is_empty());
    }

    #[test]
    fn the_template_lets_the_board_set_keys_only_when_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        for (text, on) in
            [(CONFIG_TEMPLATE.to_owned(), false), (CONFIG_TEMPLATE.replace(BOARD_KEYS_OFF, "boardKeys: on    "), true)]
        {
            fs::write(home.config(), text).expect("written");
            let read = ConfigSnapshot::read(&home, &Variables::default());
            assert_eq!((read.error, read.config.board_keys), (None, on));
        }
    }

    #[test]
    fn a_space_around_the_home_is_noticed_also_through_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("user/.openviber"));
        home.open().expect("a home");
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("user/code")).expect("a folder");
        std::os::unix::fs::symlink(at("user"), at("link")).expect("a link");
        let held = ["user", "link", "user/.openviber", "user/code", "user/.openviber/workspace"];
        assert_eq!(held.map(|space| holds_home(&at(space), &home)), [true, true, true, false, false]);
        assert!(too_wide(&at("user"), &home).contains("holds the viber's own home"));
    }
}
