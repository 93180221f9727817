//! Single flight: concurrent requests for the same data share one query.
//!
//! Invariant: a request never gets data from before it was made (`who_asks_is_told_of_no_earlier_time`).

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

/// How often other requests may join before a query starts.
const MAX_YIELDS: usize = 3;

/// The newest result, and the number of started queries.
#[derive(Debug)]
pub(crate) struct SingleFlight<T> {
    started: AtomicU64,
    newest: Mutex<Option<(u64, T)>>,
}

impl<T> Default for SingleFlight<T> {
    fn default() -> SingleFlight<T> {
        SingleFlight { started: AtomicU64::new(0), newest: Mutex::new(None) }
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Returns the result of a query that started after this call; runs one if there is none. An error is returned only
    /// to the caller that ran the query.
    pub(crate) async fn get_or_run<E>(&self, run_query: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let before = self.started.load(Ordering::SeqCst);
        let mut last = self.newest.lock().await;
        if let Some((number, value)) = &*last
            && *number > before
        {
            return Ok(value.clone());
        }
        // Concurrent callers can still join this query.
        for _ in 0..MAX_YIELDS {
            tokio::task::yield_now().await;
        }
        let number = self.started.fetch_add(1, Ordering::SeqCst) + 1;
        let value = run_query.await?;
        *last = Some((number, value.clone()));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn who_asks_is_told_of_no_earlier_time() {
        let (shared, gate) = (SingleFlight::default(), Semaphore::new(0));
        let looks = AtomicU64::new(0);
        let run_query = || async {
            let number = looks.fetch_add(1, Ordering::SeqCst) + 1;
            gate.acquire().await.expect("the semaphore is never closed").forget();
            Ok::<u64, Infallible>(number)
        };
        let start_and_count = async |count: u64| {
            while shared.started.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        // Two concurrent callers share a query. The others call while it runs, so they need a later one, but one is
        // enough for them.
        let late = async {
            start_and_count(1).await;
            tokio::join!(shared.get_or_run(run_query()), shared.get_or_run(run_query()), async {
                gate.add_permits(10)
            })
        };
        let (one, two, late) =
            tokio::join!(shared.get_or_run(run_query()), shared.get_or_run(run_query()), late);
        assert_eq!((one, two, late), (Ok(1), Ok(1), (Ok(2), Ok(2), ())));
        assert_eq!(shared.get_or_run(run_query()).await, Ok(3), "results are not kept for later calls");
    }
}
