//! A process that dies while it writes a file of the home leaves a draft beside it, which the next one removes.

use board_tests::{Llm, Viber, llm::Reply, programs::run};

fn drafts(viber: &Viber) -> Vec<String> {
    let names = std::fs::read_dir(viber.home()).into_iter().flatten().flatten();
    names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with(".config")).collect()
}

#[tokio::test]
async fn a_draft_of_a_process_that_died_is_gone_after_the_next_write() {
    let llm = Llm::start([Reply::text("done")]).await;
    let viber = Viber::fresh("alone");
    let mut dies = viber.command(&["task", "say it"]);
    dies.env("FAILPOINTS", "home::draft_written=return(crash)");
    let died = run(dies, "").await;
    assert!(died.status.code().is_none(), "it was ended by a signal: {died:?}");
    assert_eq!(drafts(&viber).len(), 1, "the case needs a draft that is left");
    assert!(!viber.home().join("config.yaml").exists());
    viber.write(".config.yaml.viber-mine", "a person's");
    viber.use_scripted_model(&llm, "openai");
    viber.cli(&["task", "say it"]).await.good();
    assert_eq!(drafts(&viber), [".config.yaml.viber-mine"]);
}
