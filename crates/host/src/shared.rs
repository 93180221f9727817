//! One look for everybody who asked before it began: what many want to know at once is found out once.
//!
//! Invariant: nobody is told of a time before he asked (`who_asks_is_told_of_no_earlier_time`).

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;

/// How often others may come forward before a look begins.
const YIELDS: usize = 3;

/// The newest look, and how many have begun.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    begun: AtomicU64,
    last: Mutex<Option<(u64, T)>>,
}

impl<T> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared { begun: AtomicU64::new(0), last: Mutex::new(None) }
    }
}

impl<T: Clone> Shared<T> {
    /// What a look says that began after this was asked; looks itself if there is none. A look that fails is told only to
    /// whoever made it.
    pub(crate) async fn get<E>(&self, look: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let before = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let Some((number, value)) = &*last
            && *number > before
        {
            return Ok(value.clone());
        }
        // Whoever asks at the same moment comes in time for this one.
        for _ in 0..YIELDS {
            tokio::task::yield_now().await;
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let value = look.await?;
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
        let (shared, gate) = (Shared::default(), Semaphore::new(0));
        let looks = AtomicU64::new(0);
        let look = || async {
            let number = looks.fetch_add(1, Ordering::SeqCst) + 1;
            gate.acquire().await.expect("it is never closed").forget();
            Ok::<u64, Infallible>(number)
        };
        let begun = async |count: u64| {
            while shared.begun.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        // Two ask together and share a look; the others ask while it goes on, so that it is not theirs, but one is enough
        // for them.
        let late = async {
            begun(1).await;
            tokio::join!(shared.get(look()), shared.get(look()), async { gate.add_permits(10) })
        };
        let (one, two, late) = tokio::join!(shared.get(look()), shared.get(look()), late);
        assert_eq!((one, two, late), (Ok(1), Ok(1), (Ok(2), Ok(2), ())));
        assert_eq!(shared.get(look()).await, Ok(3), "and nothing is kept for later");
    }
}
