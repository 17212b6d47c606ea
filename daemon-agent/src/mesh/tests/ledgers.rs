//! Ledgers of playbooks' runs: the newest is in its file, over no link, also after a kill.

use protocol::{PlaybookLedger, RunId};

use super::*;

fn ledger(run: &RunId, text: &str) -> Command {
    Command::Ledger(Box::new(PlaybookLedger { run_id: run.clone(), text: text.to_owned() }))
}

impl Fixture {
    fn ledger_file(&self, run: &RunId) -> PathBuf {
        self.mesh.home().workspace().join(format!("playbooks/runs/{run}.md"))
    }

    /// Waits until the ledger of a run says this, and nothing is left to be written.
    async fn says(&self, run: &RunId, text: &str) {
        let written = async {
            let journal = &self.mesh.shared.context.journal;
            while !std::fs::read_to_string(self.ledger_file(run)).is_ok_and(|now| now == text)
                || !journal.pending_ledgers().is_empty()
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), written).await.expect("in time");
    }
}

#[tokio::test]
async fn the_newest_ledger_takes_the_place_of_whatever_is_there() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let [one, other] = [1, 2].map(RunId::new);
    fixture.command(ledger(&one, "# One\n\n1. running\n")).await;
    fixture.says(&one, "# One\n\n1. running\n").await;
    std::fs::write(fixture.ledger_file(&one), "an agent was here").expect("written");
    for n in 0..20 {
        fixture.command(ledger(&one, &format!("step {n}"))).await;
    }
    fixture.command(ledger(&other, "# Other\n")).await;
    fixture.says(&one, "step 19").await;
    fixture.says(&other, "# Other\n").await;
    let listed = std::fs::read_dir(fixture.mesh.home().workspace().join("playbooks/runs")).expect("a folder");
    assert_eq!(listed.count(), 2, "no drafts");
}

#[tokio::test]
async fn no_link_leads_a_ledger_elsewhere() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let run = RunId::new(1);
    let mine = fixture.folder.path().join("mine.txt");
    std::fs::write(&mine, "mine").expect("written");
    let file = fixture.ledger_file(&run);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    std::os::unix::fs::symlink(&mine, &file).expect("linked");
    fixture.command(ledger(&run, "first")).await;
    fixture.says(&run, "first").await;
    assert!(file.symlink_metadata().expect("there").is_file());
    let playbooks = fixture.mesh.home().workspace().join("playbooks");
    let elsewhere = fixture.folder.path().join("elsewhere");
    std::fs::rename(&playbooks, &elsewhere).expect("moved");
    std::os::unix::fs::symlink(&elsewhere, &playbooks).expect("linked");
    fixture.command(ledger(&run, "second")).await;
    fixture.mesh.write_pending_ledgers().await;
    assert_eq!(std::fs::read_to_string(&file).expect("through the link"), "first");
    std::fs::remove_file(&playbooks).expect("removed");
    // A folder that has its name.
    std::fs::create_dir_all(&file).expect("made");
    let fixture = fixture.killed().welcomed(&[]).await;
    fixture.mesh.write_pending_ledgers().await;
    assert_eq!(fixture.mesh.shared.context.journal.pending_ledgers().len(), 1, "the last one is not lost");
    std::fs::remove_dir(&file).expect("removed");
    let fixture = fixture.killed().welcomed(&[]).await;
    fixture.says(&run, "second").await;
    assert_eq!(std::fs::read_to_string(&mine).expect("there"), "mine");
}

#[tokio::test]
async fn what_was_journalled_before_a_kill_is_written_after_it() {
    let fixture = Fixture::new().welcomed(&[]).await;
    let run = RunId::new(1);
    let command = NumberedCommand { cmd_seq: 1, command: ledger(&run, "kept") };
    fixture.mesh.journalled(vec![command]).await.expect("on disk");
    assert!(!fixture.ledger_file(&run).exists());
    let fixture = fixture.killed().welcomed(&[]).await;
    fixture.says(&run, "kept").await;
    let fixture = fixture.killed().welcomed(&[]).await;
    assert!(fixture.mesh.shared.context.journal.pending_ledgers().is_empty());
}
