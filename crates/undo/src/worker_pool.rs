//! A worker pool: several threads process a queue that grows while they run. The caller is one of them.
//!
//! Invariant: it ends when the queue is empty and no worker is busy, or when a worker has failed; a panic of
//! a worker is a panic of the caller, never a deadlock (`a_crew_ends`).

use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// More threads do not make a walk faster: the kernel is the bottleneck.
const MAX_THREADS: usize = 8;

/// A worker of the pool.
pub(crate) trait PoolWorker: Send {
    type Piece: Send;
    type Error: Send;

    /// Processes a piece and returns new ones.
    fn process_piece(&mut self, piece: Self::Piece) -> Result<Vec<Self::Piece>, Self::Error>;
}

pub(crate) struct WorkerPool<P> {
    work_queue: Mutex<WorkQueue<P>>,
    wakeup: Condvar,
}

struct WorkQueue<P> {
    pieces: Vec<P>,
    busy: usize,
    has_failed: bool,
}

impl<P: Send> WorkerPool<P> {
    pub(crate) fn new(pieces: Vec<P>) -> WorkerPool<P> {
        WorkerPool {
            work_queue: Mutex::new(WorkQueue { pieces, busy: 0, has_failed: false }),
            wakeup: Condvar::new(),
        }
    }

    /// Processes the whole queue and returns the workers.
    pub(crate) fn run_all<W: PoolWorker<Piece = P>>(self, new: impl Fn() -> W) -> Result<Vec<W>, W::Error> {
        let count = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        let results: Vec<Result<W, W::Error>> = std::thread::scope(|scope| {
            let pool = &self;
            let others: Vec<_> = (1..count)
                .filter_map(|_| {
                    let worker = new();
                    // If the system refuses to create a thread, fewer workers run.
                    std::thread::Builder::new().spawn_scoped(scope, move || pool.run_worker(worker)).ok()
                })
                .collect();
            let mine = self.run_worker(new());
            let others = others.into_iter().map(|other| match other.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            std::iter::once(mine).chain(others).collect()
        });
        results.into_iter().collect()
    }

    fn run_worker<W: PoolWorker<Piece = P>>(&self, mut worker: W) -> Result<W, W::Error> {
        while let Some((piece, busy)) = self.next_piece() {
            let more = worker.process_piece(piece);
            match more {
                Ok(more) => busy.finish_piece(more),
                Err(e) => return Err(e),
            }
        }
        Ok(worker)
    }

    /// Waits for a piece; returns `None` if the queue is finished or a worker has failed.
    fn next_piece(&self) -> Option<(P, BusyGuard<'_, P>)> {
        let mut heap = self.work_queue();
        loop {
            if heap.has_failed {
                return None;
            }
            if let Some(piece) = heap.pieces.pop() {
                heap.busy += 1;
                return Some((piece, BusyGuard { pool: self, is_finished: false }));
            }
            if heap.busy == 0 {
                return None;
            }
            heap = self.wakeup.wait(heap).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work_queue(&self) -> MutexGuard<'_, WorkQueue<P>> {
        // No code panics while it holds the lock.
        self.work_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Marks a worker as busy. If it is dropped unfinished, the worker has failed.
struct BusyGuard<'a, P: Send> {
    pool: &'a WorkerPool<P>,
    is_finished: bool,
}

impl<P: Send> BusyGuard<'_, P> {
    fn finish_piece(mut self, mut more: Vec<P>) {
        self.is_finished = true;
        self.pool.work_queue().pieces.append(&mut more);
    }
}

impl<P: Send> Drop for BusyGuard<'_, P> {
    fn drop(&mut self) {
        let mut heap = self.pool.work_queue();
        heap.busy -= 1;
        heap.has_failed |= !self.is_finished;
        drop(heap);
        self.pool.wakeup.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts down: each piece creates two smaller ones.
    struct CountDown(u64);

    impl PoolWorker for CountDown {
        type Piece = u32;
        type Error = String;

        fn process_piece(&mut self, piece: u32) -> Result<Vec<u32>, String> {
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
        let work = |pieces: Vec<u32>| WorkerPool::new(pieces).run_all(|| CountDown(0));
        assert_eq!(work(Vec::new()).unwrap().iter().map(|worker| worker.0).sum::<u64>(), 0);
        assert_eq!(work(vec![12]).unwrap().iter().map(|worker| worker.0).sum::<u64>(), (1 << 13) - 1);
        assert_eq!(work(vec![12, 99, 12]).err().as_deref(), Some("refused"));
        assert!(std::panic::catch_unwind(|| work(vec![12, 77, 12]).is_ok()).is_err());
    }
}
