//! Reach: from a question to a connection with the pod that it is about.

use minke_record::{Position, SessionId};

use crate::link::Link;
use crate::outside::{Answer, Holder, Outside, Question, Trouble};

/// How often a pod that went while it was being joined is reached again.
const AGAIN: u32 = 3;

/// A pod, or somebody who is in its way.
pub(crate) enum Reached {
    Joined(Joined),
    Held(Holder),
}

/// A pod that was reached.
pub(crate) struct Joined {
    pub(crate) session: SessionId,
    pub(crate) name: String,
    pub(crate) link: Link,
}

/// Joins the pod that the question is answered with. One that has stopped since it was found, as a pod does at the end of
/// `minke exec`, is started again, and not for ever.
pub(crate) async fn reach(
    outside: &dyn Outside,
    question: Question,
    since: Option<Position>,
) -> Result<Reached, Trouble> {
    let mut answer = outside.ask(question).await?;
    let mut again = AGAIN;
    loop {
        let (session, name, socket) = match answer {
            Answer::Reached { session, name, socket } => (session, name, socket),
            Answer::Held(holder) => return Ok(Reached::Held(holder)),
            _ => return Err(Trouble { what: "no pod was reached".to_owned(), hint: None }),
        };
        match Link::open(&socket, since, outside.introduction()).await {
            Ok(link) => return Ok(Reached::Joined(Joined { session, name, link })),
            Err(e) if e.is_nobody() && again > 0 => again -= 1,
            Err(e) => return Err(Trouble { what: e.to_string(), hint: Some(e.hint().to_owned()) }),
        }
        answer = outside.ask(Question::Reach(session)).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use minke_protocol::ClientInfo;
    use minke_record::{InputSegment, Millis};

    use super::*;
    use crate::outside::{Asking, Where};

    /// Finds a pod that is gone so many times, and then nothing that could be joined.
    struct Gone {
        times: usize,
        asked: RefCell<Vec<Question>>,
    }

    fn session() -> SessionId {
        "01970000-0000-7000-8000-000000000001".parse().unwrap()
    }

    impl Outside for Gone {
        fn ask(&self, question: Question) -> Asking<'_> {
            let mut asked = self.asked.borrow_mut();
            asked.push(question);
            let socket = PathBuf::from("/nowhere/pod.sock");
            let gone = Answer::Reached { session: session(), name: "tale".to_owned(), socket };
            let answer = if asked.len() <= self.times { gone } else { Answer::Done("elsewhere".to_owned()) };
            Box::pin(async move { Ok(answer) })
        }

        fn said(&self, _: SessionId, input: Vec<InputSegment>) -> Vec<InputSegment> {
            input
        }

        fn now(&self) -> Millis {
            0
        }

        fn introduction(&self) -> ClientInfo {
            ClientInfo { name: "test".to_owned(), version: "1".to_owned(), session: None }
        }
    }

    async fn trouble_after(times: usize) -> (String, Vec<Question>) {
        let outside = Gone { times, asked: RefCell::default() };
        let launch = Question::Launch { input: Vec::new(), model: None, place: Where::Here };
        let Err(trouble) = reach(&outside, launch, None).await else { panic!("nobody listens there") };
        (trouble.what, outside.asked.into_inner())
    }

    #[tokio::test]
    async fn a_pod_that_went_while_it_was_joined_is_reached_again() {
        let (what, asked) = trouble_after(2).await;
        assert_eq!(what, "no pod was reached", "the last answer counts");
        // A second launch would be a second session.
        assert!(matches!(asked[0], Question::Launch { .. }));
        assert_eq!(asked[1..], [Question::Reach(session()), Question::Reach(session())]);
    }

    #[tokio::test]
    async fn a_pod_that_always_goes_is_not_reached_for_ever() {
        let (what, asked) = trouble_after(usize::MAX).await;
        assert!(what.contains("/nowhere/pod.sock"), "{what}");
        assert_eq!(asked.len(), 4);
    }
}
