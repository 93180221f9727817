//! Reading in pages and reading at once produce the same blocks.

use minke_record::Entry;
use minke_view::{Block, Conversation, PrependResult};
use proptest::prelude::*;
use serde_json::json;

use crate::log_builder::*;
use crate::random_log::{self, SeededRng};

/// Returns the blocks without their versions.
pub(crate) fn without_versions(conversation: &Conversation) -> Vec<Block> {
    conversation.blocks().iter().map(|block| Block { version: 0, ..block.clone() }).collect()
}

pub(crate) fn fold_entries(entries: &[Entry]) -> Conversation {
    let mut conversation = Conversation::new();
    entries.iter().for_each(|entry| conversation.apply_entry(entry));
    conversation
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn pages_give_the_same_blocks_as_the_whole(seed: u64) {
        let mut rng = SeededRng::new(seed);
        let runs = 1 + rng.next_below(8);
        let log = random_log::random_log(&mut rng, runs);
        let whole = fold_entries(&log.entries);
        let mut at = rng.next_below(log.entries.len());
        let mut paged = fold_entries(&log.entries[at..]);
        while at > 0 {
            let from = at - 1 - rng.next_below(at.min(40));
            let applied = paged.prepend_page(&log.entries[from..at]);
            prop_assert!(matches!(applied, PrependResult::Prepended { .. }), "{applied:?}");
            prop_assert_eq!(paged.older_seq(), Some(from as u64).filter(|from| *from > 0));
            let expected = fold_entries(&log.entries[from..]);
            prop_assert_eq!(conversation_lines(&paged), conversation_lines(&expected), "from {}", from);
            prop_assert_eq!(without_versions(&paged), without_versions(&expected));
            at = from;
        }
        prop_assert_eq!(without_versions(&paged), without_versions(&whole));
        // Later entries find the items in the pages.
        let mut more = log;
        let run = RUN.to_owned();
        more.run = run;
        let len = more.entries.len();
        more.add_input("more").add_llm_call(900).add_reply(900, "yes").end_run("paused");
        let mut whole = whole;
        for entry in &more.entries[len..] {
            paged.apply_entry(entry);
            whole.apply_entry(entry);
        }
        prop_assert_eq!(without_versions(&paged), without_versions(&whole));
    }
}

#[test]
fn a_page_that_does_not_fit_changes_nothing() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("a").end_run("finished").add_input("b").end_run("finished");
    let mut conversation = fold_entries(&log.entries[5..]);
    let before = without_versions(&conversation);
    assert_eq!(conversation.prepend_page(&log.entries[..3]), PrependResult::DoesNotFit);
    assert_eq!(conversation.prepend_page(&[]), PrependResult::DoesNotFit);
    assert_eq!(conversation.prepend_page(&log.entries[3..6]), PrependResult::DoesNotFit);
    assert_eq!(without_versions(&conversation), before);
    assert_eq!(conversation.prepend_page(&log.entries[..5]), PrependResult::Prepended { blocks: 1 });
    assert_eq!(conversation.older_seq(), None);
    assert_eq!(conversation.take_changed(), Some(0));
}

/// Results of unknown calls are stored only up to a limit, and are not lost when a page arrives.
#[test]
fn what_waits_for_an_older_page_is_bounded() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x").add_llm_call(0);
    let begins = log.entries.len();
    let said = "o".repeat(50_000);
    for at in 0..600 {
        log.add_entry(result_json(&format!("c{at}"), "done", &said, "done"));
    }
    let mut conversation = fold_entries(&log.entries[begins..]);
    assert_eq!(conversation.blocks().len(), 600);
    assert!(matches!(conversation.prepend_page(&log.entries[..begins]), PrependResult::Prepended { .. }));
    assert_eq!(conversation.blocks().len(), 601);
    assert_eq!(without_versions(&conversation), without_versions(&fold_entries(&log.entries)));
}

/// A call ends after its block was dropped. When the page is read again, the call has its end.
#[test]
fn what_is_given_up_can_be_read_again() {
    let mut log = LogBuilder::with_session_start();
    log.add_input("x").add_llm_call(0);
    let alert = json!({ "kind": "alert", "level": "warn", "source": "pod", "message": "m" });
    for _ in 0..14_990 {
        log.add_entry(alert.clone());
    }
    log.add_item(0, tool_call_json("c1", "Bash", &json!({ "command": "sleep" })));
    for _ in 0..100 {
        log.add_entry(alert.clone());
    }
    log.add_entry(result_json("c1", "$ sleep (exit 0)", "", "done"));
    for _ in 0..Conversation::MAX_BLOCKS - 10_000 {
        log.add_entry(alert.clone());
    }
    let mut conversation = fold_entries(&log.entries);
    assert!(conversation.blocks().len() <= Conversation::MAX_BLOCKS);
    let first = conversation.older_seq().expect("something was given up");
    let first = usize::try_from(first).expect("it is small");
    assert!(first > 14_996 && first < 15_090, "between the call and its end: {first}");
    let applied = conversation.prepend_page(&log.entries[first - 1_000..first]);
    assert!(matches!(applied, PrependResult::Prepended { .. }), "{applied:?}");
    let expected = fold_entries(&log.entries[first - 1_000..]);
    assert!(without_versions(&conversation) == without_versions(&expected));
    // Reading stops at some point.
    let mut at = first - 1_000;
    let last = loop {
        let from = at.saturating_sub(1_000);
        match conversation.prepend_page(&log.entries[from..at]) {
            PrependResult::Prepended { .. } if from > 0 => at = from,
            other => break other,
        }
    };
    assert_eq!(last, PrependResult::Full);
}
