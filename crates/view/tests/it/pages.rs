//! Reading in pages gives what reading at once gives.

use minke_record::Entry;
use minke_view::{Block, Conversation, Prepended};
use proptest::prelude::*;
use serde_json::json;

use crate::chance::{self, Chance};
use crate::log::*;

/// Blocks without their versions.
pub(crate) fn plain(conversation: &Conversation) -> Vec<Block> {
    conversation.blocks().iter().map(|block| Block { version: 0, ..block.clone() }).collect()
}

pub(crate) fn folded(entries: &[Entry]) -> Conversation {
    let mut conversation = Conversation::new();
    entries.iter().for_each(|entry| conversation.entry(entry));
    conversation
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn pages_give_the_same_blocks_as_the_whole(seed: u64) {
        let mut chance = Chance::new(seed);
        let runs = 1 + chance.below(8);
        let log = chance::log(&mut chance, runs);
        let whole = folded(&log.entries);
        let mut at = chance.below(log.entries.len());
        let mut paged = folded(&log.entries[at..]);
        while at > 0 {
            let from = at - 1 - chance.below(at.min(40));
            let taken = paged.prepend(&log.entries[from..at]);
            prop_assert!(matches!(taken, Prepended::Taken { .. }), "{taken:?}");
            prop_assert_eq!(paged.older(), Some(from as u64).filter(|from| *from > 0));
            let expected = folded(&log.entries[from..]);
            prop_assert_eq!(words(&paged), words(&expected), "from {}", from);
            prop_assert_eq!(plain(&paged), plain(&expected));
            at = from;
        }
        prop_assert_eq!(plain(&paged), plain(&whole));
        // What comes later finds what stands in the pages.
        let mut more = log;
        let run = RUN.to_owned();
        more.run = run;
        let len = more.entries.len();
        more.says("more").asks_model(900).replies(900, "yes").ends("paused");
        let mut whole = whole;
        for entry in &more.entries[len..] {
            paged.entry(entry);
            whole.entry(entry);
        }
        prop_assert_eq!(plain(&paged), plain(&whole));
    }
}

#[test]
fn a_page_that_does_not_fit_changes_nothing() {
    let mut log = Log::begins();
    log.says("a").ends("finished").says("b").ends("finished");
    let mut conversation = folded(&log.entries[5..]);
    let before = plain(&conversation);
    assert_eq!(conversation.prepend(&log.entries[..3]), Prepended::DoesNotFit);
    assert_eq!(conversation.prepend(&[]), Prepended::DoesNotFit);
    assert_eq!(conversation.prepend(&log.entries[3..6]), Prepended::DoesNotFit);
    assert_eq!(plain(&conversation), before);
    assert_eq!(conversation.prepend(&log.entries[..5]), Prepended::Taken { blocks: 1 });
    assert_eq!(conversation.older(), None);
    assert_eq!(conversation.changed(), Some(0));
}

/// Results of calls that nobody has ever seen are not kept aside without end, and are not lost when a page comes.
#[test]
fn what_waits_for_an_older_page_is_bounded() {
    let mut log = Log::begins();
    log.says("x").asks_model(0);
    let begins = log.entries.len();
    let said = "o".repeat(50_000);
    for at in 0..600 {
        log.add(result(&format!("c{at}"), "done", &said, "done"));
    }
    let mut conversation = folded(&log.entries[begins..]);
    assert_eq!(conversation.blocks().len(), 600);
    assert!(matches!(conversation.prepend(&log.entries[..begins]), Prepended::Taken { .. }));
    assert_eq!(conversation.blocks().len(), 601);
    assert_eq!(plain(&conversation), plain(&folded(&log.entries)));
}

/// A call that began long ago ends when its beginning is no longer held; read again, it has its end.
#[test]
fn what_is_given_up_can_be_read_again() {
    let mut log = Log::begins();
    log.says("x").asks_model(0);
    let alert = json!({ "kind": "alert", "level": "warn", "source": "pod", "message": "m" });
    for _ in 0..14_990 {
        log.add(alert.clone());
    }
    log.model(0, tool_call("c1", "Bash", &json!({ "command": "sleep" })));
    for _ in 0..100 {
        log.add(alert.clone());
    }
    log.add(result("c1", "$ sleep (exit 0)", "", "done"));
    for _ in 0..Conversation::BLOCKS - 10_000 {
        log.add(alert.clone());
    }
    let mut conversation = folded(&log.entries);
    assert!(conversation.blocks().len() <= Conversation::BLOCKS);
    let first = conversation.older().expect("something was given up");
    let first = usize::try_from(first).expect("it is small");
    assert!(first > 14_996 && first < 15_090, "between the call and its end: {first}");
    let taken = conversation.prepend(&log.entries[first - 1_000..first]);
    assert!(matches!(taken, Prepended::Taken { .. }), "{taken:?}");
    let expected = folded(&log.entries[first - 1_000..]);
    assert!(plain(&conversation) == plain(&expected));
    // And it ends somewhere.
    let mut at = first - 1_000;
    let last = loop {
        let from = at.saturating_sub(1_000);
        match conversation.prepend(&log.entries[from..at]) {
            Prepended::Taken { .. } if from > 0 => at = from,
            other => break other,
        }
    };
    assert_eq!(last, Prepended::Full);
}
