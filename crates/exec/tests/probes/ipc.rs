//! Shared memory, queues and semaphores of the outside, which an ipc namespace hides. Removed when dropped.

use std::io;

use crate::sys::{c, own, sys};

pub(crate) struct Ipc {
    key: i32,
    memory: libc::c_long,
    messages: libc::c_long,
    semaphore: libc::c_long,
    queue: String,
}

impl Ipc {
    pub(crate) fn make() -> io::Result<Ipc> {
        // One world at a time in a process, and processes differ.
        let key = 0x4d4b_0000_u32.wrapping_add(std::process::id()) as i32;
        let mode = libc::IPC_CREAT | 0o600;
        let memory = sys!(SYS_shmget, key, 4096, mode)?;
        let messages = sys!(SYS_msgget, key, mode)?;
        let semaphore = sys!(SYS_semget, key, 1, mode)?;
        let queue = format!("minke-probe-{}", std::process::id());
        let made = sys!(SYS_mq_open, c(&queue), libc::O_CREAT | libc::O_RDWR, 0o600, 0);
        // A kernel without queues is one thing less to protect.
        drop(made.map(own));
        Ok(Ipc { key, memory, messages, semaphore, queue })
    }

    pub(crate) fn facts(&self) -> [(&'static str, String); 5] {
        let key = self.key.to_string();
        [
            ("shm_key", key.clone()),
            ("shm_id", self.memory.to_string()),
            ("msg_key", key.clone()),
            ("sem_key", key),
            ("mq", self.queue.clone()),
        ]
    }
}

impl Drop for Ipc {
    fn drop(&mut self) {
        let _ = sys!(SYS_shmctl, self.memory, libc::IPC_RMID, 0);
        let _ = sys!(SYS_msgctl, self.messages, libc::IPC_RMID, 0);
        let _ = sys!(SYS_semctl, self.semaphore, 0, libc::IPC_RMID, 0);
        let _ = sys!(SYS_mq_unlink, c(&self.queue));
    }
}
