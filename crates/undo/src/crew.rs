//! Crew: several threads at one heap of work that grows while it is done. The caller is one of them.
//!
//! Invariant: it ends when the heap is empty and nobody is at work, or when one of them has failed; a panic in one is a
//! panic of the caller, never a wait without end (`a_crew_ends`).

use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More threads than this do not make a walk faster: it is the kernel that works.
const MOST: usize = 8;

/// One who works.
pub(crate) trait Work: Send {
    type Piece: Send;
    type Error: Send;

    /// Does a piece, and says what more there is to do.
    fn take(&mut self, piece: Self::Piece) -> Result<Vec<Self::Piece>, Self::Error>;
}

pub(crate) struct Crew<P> {
    heap: Mutex<Heap<P>>,
    news: Condvar,
}

struct Heap<P> {
    pieces: Vec<P>,
    busy: usize,
    failed: bool,
}

impl<P: Send> Crew<P> {
    pub(crate) fn new(pieces: Vec<P>) -> Crew<P> {
        Crew { heap: Mutex::new(Heap { pieces, busy: 0, failed: false }), news: Condvar::new() }
    }

    /// Has the whole heap done, and gives back those who did it.
    pub(crate) fn work<W: Work<Piece = P>>(self, new: impl Fn() -> W) -> Result<Vec<W>, W::Error> {
        let count = std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST);
        let results: Vec<Result<W, W::Error>> = std::thread::scope(|scope| {
            let crew = &self;
            let others: Vec<_> = (1..count)
                .filter_map(|_| {
                    let worker = new();
                    // A machine that gives no more threads has fewer at work.
                    std::thread::Builder::new().spawn_scoped(scope, move || crew.run(worker)).ok()
                })
                .collect();
            let mine = self.run(new());
            let others = others.into_iter().map(|other| match other.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            std::iter::once(mine).chain(others).collect()
        });
        results.into_iter().collect()
    }

    fn run<W: Work<Piece = P>>(&self, mut worker: W) -> Result<W, W::Error> {
        while let Some((piece, busy)) = self.next() {
            let more = worker.take(piece);
            match more {
                Ok(more) => busy.done(more),
                Err(e) => return Err(e),
            }
        }
        Ok(worker)
    }

    /// Waits for a piece; none if everything is done, or one of us has failed.
    fn next(&self) -> Option<(P, Busy<'_, P>)> {
        let mut heap = self.heap();
        loop {
            if heap.failed {
                return None;
            }
            if let Some(piece) = heap.pieces.pop() {
                heap.busy += 1;
                return Some((piece, Busy { crew: self, ended: false }));
            }
            if heap.busy == 0 {
                return None;
            }
            heap = self.news.wait(heap).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn heap(&self) -> MutexGuard<'_, Heap<P>> {
        // Nothing that can panic is done under the lock.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody at work. If it ends without a word, it has failed.
struct Busy<'a, P: Send> {
    crew: &'a Crew<P>,
    ended: bool,
}

impl<P: Send> Busy<'_, P> {
    fn done(mut self, mut more: Vec<P>) {
        self.ended = true;
        self.crew.heap().pieces.append(&mut more);
    }
}

impl<P: Send> Drop for Busy<'_, P> {
    fn drop(&mut self) {
        let mut heap = self.crew.heap();
        heap.busy -= 1;
        heap.failed |= !self.ended;
        drop(heap);
        self.crew.news.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts down: each piece makes two smaller ones.
    struct Count(u64);

    impl Work for Count {
        type Piece = u32;
        type Error = String;

        fn take(&mut self, piece: u32) -> Result<Vec<u32>, String> {
            self.0 += 1;
            match piece {
                0 => Ok(Vec::new()),
                99 => Err("refused".to_owned()),
                77 => panic!("a defect"),
                n => Ok(vec![n - 1, n - 1]),
            }
        }
    }

    #[test]
    fn a_crew_ends() {
        let work = |pieces: Vec<u32>| Crew::new(pieces).work(|| Count(0));
        assert_eq!(work(Vec::new()).unwrap().iter().map(|worker| worker.0).sum::<u64>(), 0);
        assert_eq!(work(vec![12]).unwrap().iter().map(|worker| worker.0).sum::<u64>(), (1 << 13) - 1);
        assert_eq!(work(vec![12, 99, 12]).err().as_deref(), Some("refused"));
        assert!(std::panic::catch_unwind(|| work(vec![12, 77, 12]).is_ok()).is_err());
    }
}
