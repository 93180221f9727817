//! Connects to the pod of a backend request.

use minke_record::{Position, SessionId};

use crate::backend::{BackendError, BackendRequest, BackendResponse, ScopeHolder, TuiBackend};
use crate::pod_link::PodLink;

/// Limit for retries if a pod stops during the connection.
const MAX_RETRIES: u32 = 3;

/// A connected pod, or the pod that blocks the directory.
pub(crate) enum JoinResult {
    Joined(JoinedPod),
    ScopeHeld(ScopeHolder),
}

/// A connected pod.
pub(crate) struct JoinedPod {
    pub(crate) sample_session: SessionId,
    pub(crate) name: String,
    pub(crate) link: PodLink,
}

/// Connects to the pod in the backend's response. Restarts a pod that has stopped meanwhile, as at the end of
/// `minke exec`, up to a limit.
pub(crate) async fn join_pod(
    backend: &dyn TuiBackend,
    question: BackendRequest,
    since: Option<Position>,
) -> Result<JoinResult, BackendError> {
    let mut answer = backend.send_request(question).await?;
    let mut again = MAX_RETRIES;
    loop {
        let (sample_session, name, socket) = match answer {
            BackendResponse::PodOpened { session, name, socket } => (session, name, socket),
            BackendResponse::ScopeHeld(holder) => return Ok(JoinResult::ScopeHeld(holder)),
            _ => return Err(BackendError { message: "could not connect to a pod".to_owned(), hint: None }),
        };
        match PodLink::open_link(&socket, since, backend.client_info()).await {
            Ok(link) => return Ok(JoinResult::Joined(JoinedPod { sample_session, name, link })),
            Err(e) if e.is_not_running() && again > 0 => again -= 1,
            Err(e) => return Err(BackendError { message: e.to_string(), hint: Some(e.hint().to_owned()) }),
        }
        answer = backend.send_request(BackendRequest::OpenPod(sample_session)).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use minke_protocol::ClientInfo;
    use minke_record::{InputSegment, Millis};

    use super::*;
    use crate::backend::{BackendFuture, WorkTarget};

    /// Returns a missing pod `times` times, then a response without a pod.
    struct MissingPodBackend {
        times: usize,
        requests: RefCell<Vec<BackendRequest>>,
    }

    fn sample_session() -> SessionId {
        "01970000-0000-7000-8000-000000000001".parse().unwrap()
    }

    impl TuiBackend for MissingPodBackend {
        fn send_request(&self, question: BackendRequest) -> BackendFuture<'_> {
            let mut asked = self.requests.borrow_mut();
            asked.push(question);
            let socket = PathBuf::from("/nowhere/pod.sock");
            let gone =
                BackendResponse::PodOpened { session: sample_session(), name: "tale".to_owned(), socket };
            let answer =
                if asked.len() <= self.times { gone } else { BackendResponse::Done("elsewhere".to_owned()) };
            Box::pin(async move { Ok(answer) })
        }

        fn resolve_references(&self, _: SessionId, input: Vec<InputSegment>) -> Vec<InputSegment> {
            input
        }

        fn now_ms(&self) -> Millis {
            0
        }

        fn client_info(&self) -> ClientInfo {
            ClientInfo { name: "test".to_owned(), version: "1".to_owned(), session: None }
        }
    }

    async fn join_error(times: usize) -> (String, Vec<BackendRequest>) {
        let backend = MissingPodBackend { times, requests: RefCell::default() };
        let launch = BackendRequest::Launch { input: Vec::new(), model: None, place: WorkTarget::CurrentDir };
        let Err(error) = join_pod(&backend, launch, None).await else { panic!("there is no listener") };
        (error.message, backend.requests.into_inner())
    }

    #[tokio::test]
    async fn a_pod_that_went_while_it_was_joined_is_reached_again() {
        let (what, asked) = join_error(2).await;
        assert_eq!(what, "could not connect to a pod", "the last answer counts");
        // A second launch would create a second session.
        assert!(matches!(asked[0], BackendRequest::Launch { .. }));
        assert_eq!(
            asked[1..],
            [BackendRequest::OpenPod(sample_session()), BackendRequest::OpenPod(sample_session())]
        );
    }

    #[tokio::test]
    async fn a_pod_that_always_goes_is_not_reached_for_ever() {
        let (what, asked) = join_error(usize::MAX).await;
        assert!(what.contains("/nowhere/pod.sock"), "{what}");
        assert_eq!(asked.len(), 4);
    }
}
