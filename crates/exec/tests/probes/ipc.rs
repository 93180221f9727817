//! Shared memory, queues and semaphores outside the sandbox, which an IPC namespace hides. Removed on drop.

use std::io;

use crate::sys::{own_descriptor, sys, to_c_string};

pub(crate) struct IpcObjects {
    key: i32,
    memory: libc::c_long,
    messages: libc::c_long,
    semaphore: libc::c_long,
    queue: String,
}

impl IpcObjects {
    pub(crate) fn create_objects() -> io::Result<IpcObjects> {
        // A process has one world at a time, and processes have different keys.
        let key = 0x4d4b_0000_u32.wrapping_add(std::process::id()) as i32;
        let mode = libc::IPC_CREAT | 0o600;
        let memory = sys!(SYS_shmget, key, 4096, mode)?;
        let messages = sys!(SYS_msgget, key, mode)?;
        let semaphore = sys!(SYS_semget, key, 1, mode)?;
        let queue = format!("minke-probe-{}", std::process::id());
        let made = sys!(SYS_mq_open, to_c_string(&queue), libc::O_CREAT | libc::O_RDWR, 0o600, 0);
        // On a kernel without queues, there is one object less to protect.
        drop(made.map(own_descriptor));
        Ok(IpcObjects { key, memory, messages, semaphore, queue })
    }

    pub(crate) fn ipc_facts(&self) -> [(&'static str, String); 5] {
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

impl Drop for IpcObjects {
    fn drop(&mut self) {
        let _ = sys!(SYS_shmctl, self.memory, libc::IPC_RMID, 0);
        let _ = sys!(SYS_msgctl, self.messages, libc::IPC_RMID, 0);
        let _ = sys!(SYS_semctl, self.semaphore, 0, libc::IPC_RMID, 0);
        let _ = sys!(SYS_mq_unlink, to_c_string(&self.queue));
    }
}
